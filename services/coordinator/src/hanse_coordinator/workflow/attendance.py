"""Who was there at a step, journalled: the first time by names, then by who has come and gone.

Repeated at every round, the names of thousands would be most of a journal; those of very many are more than one entry
can hold.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Collection

from hanse_coordinator.workflow.steps import Steps

NAMED_IN_FULL = 1_000
"""Up to so many are listed at every step, which is plain to read."""
_PART = 12_000  # a name has at most 63 letters, so no entry is near a message's 1 MiB


class Attendance:
    """The participants that were there, step by step, of one run."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._there: frozenset[str] = frozenset()

    async def at(self, step: str, look: Callable[[], Awaitable[Collection[str]]]) -> tuple[str, ...]:
        """Names, sorted, of those there at a step: as recorded, or as `look` finds them now.

        Every entry is a change of its own to who was there. A coordinator that is replaced between the parts of a step
        leaves the next one with fewer changes to record.
        """
        found: frozenset[str] | None = None
        for number in itertools.count(1):
            part = step if number == 1 else f"{step}-{number}"
            closed = self._steps.recorded(part)
            if closed is None:
                await self._steps.begin()
                found = frozenset(await look()) if found is None else found
                changed = sorted(found ^ self._there)
                if len(found) <= NAMED_IN_FULL and number == 1:
                    closed = {"present": sorted(found)}
                else:
                    closed = {"changed": changed[:_PART], "more": len(changed) > _PART}
                await self._steps.close(part, closed)
            if "present" in closed:
                self._there = frozenset(closed["present"])
            else:
                self._there ^= frozenset(closed["changed"])
            if not closed.get("more"):
                break
        return tuple(sorted(self._there))
