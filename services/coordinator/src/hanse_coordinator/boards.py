"""What the hub has heard of others, kept current by watching the bus: sites' signs of life, compensators' keys."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from hanse_fabric.bus.port import Bus, Record
from hanse_fabric.clock import Clock
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import CompensatorRecord, Presence
from hanse_fabric.messages.tasks import SLOWEST_PACE_S
from hanse_fabric.records import Bucket
from hanse_fabric.set_aside import Aside
from hanse_fabric.subjects import COMPENSATORS, PRESENCE, Stream

_MISSED = 2.75
"""A site is away when it has not shown life for so many times the pace that it has named: two may be lost."""
_STREAM: Stream = PRESENCE.stream or Stream("")


@dataclass(frozen=True, slots=True)
class Sighting:
    """The last sign of life. `clock_difference`: seconds that the site's clock is ahead; None: not seen arriving."""

    presence: Presence
    at: datetime
    clock_difference: float | None

    def is_current(self, now: datetime) -> bool:
        """Whether the site counts as being there."""
        return (now - self.at).total_seconds() <= _MISSED * (self.presence.every or SLOWEST_PACE_S)


class PresenceBoard:
    """The last sighting of each participant, as `watch` keeps it."""

    def __init__(self, bus: Bus, clock: Clock, *, told: Callable[[], None] = lambda: None) -> None:
        """`told` is called at every sign of life."""
        self._bus, self._clock, self._told, self._aside = bus, clock, told, Aside(bus)
        self._sightings: dict[tuple[str, str], Sighting] = {}

    async def watch(self) -> None:
        """Follow until cancelled."""
        pattern = PRESENCE.wildcard()
        stored = await self._bus.snapshot(_STREAM, pattern)
        for record in stored:
            await self._note(record, live=False)
        after = max((record.sequence for record in stored), default=0)
        async with self._bus.follow(_STREAM, pattern, after=after) as records:
            async for record in records:
                await self._note(record, live=True)

    def of(self, project: str, participant: str) -> Sighting | None:
        return self._sightings.get((project, participant))

    def online(self, sighting: Sighting | None) -> bool:
        return sighting is not None and sighting.is_current(self._clock.now())

    def count_online(self) -> int:
        return sum(self.online(sighting) for sighting in self._sightings.values())

    async def _note(self, record: Record, *, live: bool) -> None:
        tokens = PRESENCE.parse(record.subject)
        try:
            presence = Presence.decode(record.data)
        except HanseError as error:
            await self._aside.put(record.subject, record.data, error, sequence=record.sequence)
            return
        now = self._clock.now()
        # What was stored before we came has no time of arrival; the site's own is the best there is.
        at = now if live else min(presence.sent_at, now)
        difference = (presence.sent_at - now).total_seconds() if live else None
        self._sightings[tokens["project"], tokens["participant"]] = Sighting(presence, at, difference)
        self._told()


class CompensatorBoard:
    """The compensators' public keys as they announce them, for showing: sites trust the key that their policy pins. Of
    those who share masks it is the lasting one."""

    def __init__(self, bus: Bus) -> None:
        self._bucket = Bucket(bus, COMPENSATORS, CompensatorRecord)
        self._keys: dict[str, str] = {}

    async def watch(self) -> None:
        """Follow until cancelled."""
        async with self._bucket.watch() as changes:
            async for change in changes:
                if change is None:
                    continue
                name = change.tokens["name"]
                if change.value is None:
                    self._keys.pop(name, None)
                else:
                    told = change.value
                    pinned = told.public_key if told.seed_key is None else told.seed_key.owner
                    self._keys[name] = base64.b64encode(pinned).decode()

    def keys(self) -> dict[str, str]:
        """Public keys (base64) by name."""
        return dict(sorted(self._keys.items()))
