"""What the answers to each project's open steps take of the room that all projects share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from hanse_fabric.bus.port import Bus
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.subjects import RESULT, Stream

_AGAIN_S = 60.0
_STREAM: Stream = RESULT.stream or Stream("")


@dataclass(slots=True)
class _Known:
    """Bytes of a project's answers at most: those that were there when they were last counted, and all since."""

    size: int = 0
    counted_at: float = -_AGAIN_S
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class ResultRoom:
    """Of all coordinators, as one of them knows it. Steps close, and what is left is counted only where what came since
    the last time would be too much: of an ordinary project hardly ever.

    Args:
        most: bytes of one project's; 0: no limit.
    """

    def __init__(self, bus: Bus, most: int = 0) -> None:
        self._bus, self._most = bus, most
        self._projects: dict[str, _Known] = {}

    async def take(self, project: str, size: int) -> None:
        """One more answer of so many bytes.

        Raises:
            HanseError: UNAVAILABLE where there is no room before steps of the project close; it is sent again later.
        """
        if not self._most:
            return
        known = self._projects.setdefault(project, _Known())
        if known.size + size > self._most:
            async with known.lock:
                if self._bus.clock.monotonic() >= known.counted_at + _AGAIN_S:
                    await self._count(project, known)
        if known.size + size > self._most:
            raise HanseError(
                ErrorCode.UNAVAILABLE,
                f"quota results of project {project}: answers to its open steps have {known.size} bytes, {self._most} "
                "are allowed",
                hint="send it again in a minute, or ask the hub's operator for more",
            )
        known.size += size

    async def _count(self, project: str, known: _Known) -> None:
        before = known.size
        records = await self._bus.snapshot(_STREAM, RESULT.wildcard(project=project))
        known.size += sum(len(record.data) for record in records) - before
        known.counted_at = self._bus.clock.monotonic()
