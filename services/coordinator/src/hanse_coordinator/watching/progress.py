"""How far the sites are with their tasks, passed on to those who watch. Shown only, never decided upon."""

from __future__ import annotations

import logging

from hanse_coordinator.watching.notices import Notices
from hanse_fabric.bus.port import Bus
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import Progress
from hanse_fabric.subjects import PROGRESS, Stream

_LOG = logging.getLogger(__name__)
_STREAM: Stream = PROGRESS.stream or Stream("")
_EVERY_S = 0.25
_MOST_SITES = 64


class ProgressRelay:
    """Passes progress on as events: of each participant at most four a second, and of the first 64 participants that
    report, for nobody reads more."""

    def __init__(self, bus: Bus, notices: Notices, *, project: str, run: str) -> None:
        self._bus, self._notices = bus, notices
        self._pattern = PROGRESS.wildcard(project=project, run=run)
        self._told: dict[str, float] = {}

    async def follow(self) -> None:
        """Relay until cancelled."""
        async with self._bus.follow(_STREAM, self._pattern) as records:
            async for record in records:
                self._relay(PROGRESS.parse(record.subject)["participant"], record.data, record.sequence)

    def _relay(self, name: str, data: bytes, sequence: int) -> None:
        now = self._bus.clock.monotonic()
        last = self._told.get(name)
        if (last is None and len(self._told) >= _MOST_SITES) or (last is not None and now - last < _EVERY_S):
            return
        self._told[name] = now
        try:
            progress = Progress.decode(data)
        except HanseError as error:
            _LOG.warning("progress of %s is not understood: %s", name, error)
            return
        self._notices.event(
            "progress", f"{name}/{sequence}", participant=name, step=progress.step,
            fraction=progress.fraction, text=progress.text,
        )  # fmt: skip
