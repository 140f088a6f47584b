"""How far the sites are with their tasks, passed on to those who watch. Shown only, never decided upon."""

from __future__ import annotations

from hanse_coordinator.watching.notices import Notices
from hanse_fabric.bus.port import Bus, Record
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import Progress
from hanse_fabric.set_aside import Aside
from hanse_fabric.subjects import PROGRESS, Stream

_STREAM: Stream = PROGRESS.stream or Stream("")
_EVERY_S = 0.25
_MOST_SITES = 64


class ProgressRelay:
    """Passes progress on as events: of each participant at most four a second, and of the first 64 participants that
    report, for nobody reads more."""

    def __init__(self, bus: Bus, notices: Notices, *, project: str, run: str) -> None:
        self._bus, self._notices, self._aside = bus, notices, Aside(bus)
        self._pattern = PROGRESS.wildcard(project=project, run=run)
        self._told: dict[str, float] = {}

    async def follow(self) -> None:
        """Relay until cancelled."""
        async with self._bus.follow(_STREAM, self._pattern) as records:
            async for record in records:
                await self._relay(record)

    async def _relay(self, record: Record) -> None:
        name = PROGRESS.parse(record.subject)["participant"]
        now = self._bus.clock.monotonic()
        last = self._told.get(name)
        if (last is None and len(self._told) >= _MOST_SITES) or (last is not None and now - last < _EVERY_S):
            return
        self._told[name] = now
        try:
            progress = Progress.decode(record.data)
        except HanseError as error:
            await self._aside.put(record.subject, record.data, error, sequence=record.sequence)
            return
        self._notices.event(
            "progress", f"{name}/{record.sequence}", participant=name, step=progress.step,
            fraction=progress.fraction, text=progress.text,
        )  # fmt: skip
