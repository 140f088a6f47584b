"""Signs of life of the participants, for showing them: when last seen, with which version, device and clock."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime

from hanse_fabric.bus.port import Bus, Record
from hanse_fabric.clock import Clock
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import Presence
from hanse_fabric.subjects import PRESENCE, Stream

ONLINE_WITHIN_S = 180.0
_STREAM: Stream = PRESENCE.stream or Stream("")
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sighting:
    """The last sign of life. `clock_difference`: seconds that the site's clock is ahead; None: not seen arriving."""

    presence: Presence
    at: datetime
    clock_difference: float | None


class PresenceBoard:
    """The last sighting of each participant, as `watch` keeps it."""

    def __init__(self, bus: Bus, clock: Clock) -> None:
        self._bus, self._clock = bus, clock
        self._sightings: dict[tuple[str, str], Sighting] = {}

    async def watch(self) -> None:
        """Follow until cancelled."""
        pattern = PRESENCE.wildcard()
        stored = await self._bus.snapshot(_STREAM, pattern)
        for record in stored:
            self._note(record, live=False)
        after = max((record.sequence for record in stored), default=0)
        async with self._bus.follow(_STREAM, pattern, after=after) as records:
            async for record in records:
                self._note(record, live=True)

    def of(self, project: str, participant: str) -> Sighting | None:
        return self._sightings.get((project, participant))

    def online(self, sighting: Sighting | None) -> bool:
        return sighting is not None and (self._clock.now() - sighting.at).total_seconds() <= ONLINE_WITHIN_S

    def count_online(self) -> int:
        return sum(self.online(sighting) for sighting in self._sightings.values())

    def _note(self, record: Record, *, live: bool) -> None:
        tokens = PRESENCE.parse(record.subject)
        try:
            presence = Presence.decode(record.data)
        except HanseError as error:
            _LOG.warning("presence on %s is not understood: %s", record.subject, error)
            return
        now = self._clock.now()
        # What was stored before we came has no time of arrival; the site's own is the best there is.
        at = now if live else min(presence.sent_at, now)
        difference = (presence.sent_at - now).total_seconds() if live else None
        self._sightings[tokens["project"], tokens["participant"]] = Sighting(presence, at, difference)
