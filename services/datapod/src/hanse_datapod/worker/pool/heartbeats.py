"""Which workers of a pool live: those whose heartbeat changes, by the observer's own clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

BEAT_S = 1.0
DEAD_S = 30.0
"""A worker whose heartbeat stands still for so long (seconds) is taken for dead."""

_FORGOTTEN_S = 3600.0


class Heartbeats:
    """What an observer has seen of the workers' files. `look` blocks.

    Args:
        dead_s: see DEAD_S.
    """

    def __init__(self, folder: Path, *, dead_s: float = DEAD_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._dead_s, self._clock = folder, dead_s, clock
        self._seen: dict[str, tuple[bytes, float]] = {}

    def look(self, *known: str) -> None:
        """Read the heartbeats as they are now. Files of workers that died long ago are removed.

        Args:
            known: workers that are there for certain: a listing may miss a file that is replaced meanwhile.
        """
        found: dict[str, tuple[bytes, float]] = {}
        now = self._clock()
        for name in {*known, *self._seen, *(path.stem for path in self._folder.glob("[!.]*.json"))}:
            path = self._folder / f"{name}.json"
            try:
                beat = path.read_bytes()
            except FileNotFoundError:
                continue  # it has left
            before = self._seen.get(name)
            since = before[1] if before is not None and before[0] == beat else now
            if now - since > _FORGOTTEN_S:
                path.unlink(missing_ok=True)
                continue
            found[name] = (beat, since)
        self._seen = found

    def alive(self, worker: str) -> bool:
        """Whether a worker's heartbeat has changed lately; one that is seen for the first time lives."""
        seen = self._seen.get(worker)
        return seen is not None and self._clock() - seen[1] <= self._dead_s

    def count(self) -> int:
        """How many live."""
        return sum(map(self.alive, self._seen))
