"""A site's home runs in one place at a time. One that was copied, and runs twice, would answer twice.

A datapod's signs of life name its place by a word that only the site can make and that tells nothing of it. While the
site shows life from one place, another is refused; who has moved a home stops it there first. What cannot be said for
sure (a coordinator that has only just begun knows the other's last sign of life by the site's own clock) is let in: two
homes are refused in turn then, until one is stopped.
"""

from __future__ import annotations

from collections import OrderedDict

from hanse_fabric.bus.port import Bus
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import AuditEvent, Presence
from hanse_fabric.messages.tasks import SLOWEST_PACE_S
from hanse_fabric.subjects import AUDIT, PRESENCE, Stream
from hanse_schemas.http.joining import ALLOWED_SKEW_S

_STREAM: Stream = PRESENCE.stream or Stream("")
_MISSED = 2.75
"""See `boards`: so many times its pace a site may be silent, and counts as being there."""
_REMEMBERED = 10_000
_TOLD_EVERY_S = 600.0


class OnePlace:
    """The places from which sites have shown life to this coordinator."""

    def __init__(self, bus: Bus, instance: str) -> None:
        self._bus, self._instance = bus, instance
        self._seen: OrderedDict[tuple[str, str], tuple[str, float]] = OrderedDict()
        """Place, and until when its last sign of life holds, by project and participant."""
        self._told: dict[tuple[str, str], float] = {}

    async def require(self, said: Presence) -> None:
        """Let a sign of life pass where the site is nowhere else.

        Raises:
            HanseError: CONFLICT where it shows life from another place.
        """
        if said.place is None:
            return
        who, now = (said.project, said.participant), self._bus.clock.monotonic()
        place, until = self._seen.get(who, ("", 0.0))
        if until <= now:
            place, until = await self._stored(said)
        if until > now and place != said.place:
            await self._audit(who, now)
            raise HanseError(
                ErrorCode.CONFLICT,
                f"participant: {said.participant!r} is at work in another place: its home was copied, and runs twice",
                hint="stop one of them, and delete its home; who has moved it stops it there, and is let in "
                f"{until - now:.0f} seconds later",
            )
        self._seen[who] = said.place, now + _lasts(said)
        self._seen.move_to_end(who)
        while len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)

    async def _stored(self, said: Presence) -> tuple[str, float]:
        """Place and end of its last sign of life that is stored, on the monotonic clock."""
        record = await self._bus.last(_STREAM, PRESENCE.of(project=said.project, participant=said.participant))
        if record is None:
            return "", 0.0
        try:
            last = Presence.decode(record.data)
        except HanseError:
            return "", 0.0  # it was set aside
        age = (self._bus.clock.now() - last.sent_at).total_seconds()
        if age < -ALLOWED_SKEW_S:
            return "", 0.0  # by a clock that was wrong then, it would hold for as long as that was ahead
        return (last.place, self._bus.clock.monotonic() + _lasts(last) - age) if last.place else ("", 0.0)

    async def _audit(self, who: tuple[str, str], now: float) -> None:
        """Its project's audit has it, now and then."""
        if now - self._told.get(who, -_TOLD_EVERY_S) < _TOLD_EVERY_S:
            return
        self._told[who] = now
        project, participant = who
        event = AuditEvent(
            project=project, at=self._bus.clock.now(), actor=f"coordinator:{self._instance}",
            action="participant.twice", subject=f"participant:{participant}", authority="one home, one place",
            detail={"reason": "its home runs in two places; the second is refused"},
        )  # fmt: skip
        await self._bus.publish(AUDIT.of(project=project), event.encode())


def _lasts(said: Presence) -> float:
    """Seconds for which a sign of life holds."""
    return _MISSED * (said.every or SLOWEST_PACE_S)
