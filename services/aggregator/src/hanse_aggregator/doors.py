"""The aggregator's doors: sites hand in updates and what they contribute to sums, and ask for the sums.

The coordinator may not read these, so it cannot take them in; it tells when a step opens, and is asked where that has
not come. An update is written where the reductions look for it, which the coordinator is told, and a contribution to
the stream of its session.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from contextlib import suppress

from hanse_fabric.bus.port import Bus
from hanse_fabric.doors.byte_ledger import ledger_of
from hanse_fabric.doors.lately import Lately
from hanse_fabric.doors.serving import Doorkeeper, Enrolled, Request, Shares
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.doors import OpenFor
from hanse_fabric.queue import stream_of
from hanse_fabric.subjects import EXCHANGE, EXCHANGED, HANDED_IN, OPENED, OPENS, UPDATE, WRITTEN, Door
from hanse_fabric.telemetry import inject
from hanse_fabric.telemetry.catalogue import REFUSED_UPDATES

_LOG = logging.getLogger(__name__)
_GROUP = "aggregators"
_BELIEVED_S = 10.0
_MOST_OBJECTS = 64
"""Updates of one site in one step: one, its extras, a tally."""

_MOST_SUMMED = 256 << 20
"""Bytes that one site contributes to the sums of one step."""
_MOST_WAITING = 8 << 20
"""Bytes of these to sums that are not made yet: who waits for the others has given few, and who makes up sums that
nobody else takes part in does not fill the stream that all projects share."""

_STEPS = 100_000
_PARKED_S = 5.0
_UPDATE_PARKED_S = 1.5
"""Less than the coordinator's site waits before it asks again (`Bus.request`)."""

_WRITTEN_SOON_S = 0.005
_KEPT_BYTES = 8 << 20
_SUMS_A_SECOND, _SUMS_AT_ONCE = 400.0, 800.0
"""Of one site: an algorithm that talks in the middle of a step asks for as many as the link carries."""


class _Step:
    """What one site has handed in in one step."""

    def __init__(self) -> None:
        self.believed_until = 0.0
        self.objects: set[str] = set()
        self.summed: dict[str, int] = {}
        self.waiting: dict[str, int] = {}


class FreshUpdates:
    """Updates that were handed in here and written down lately, by subject: the reduction that follows need not fetch
    them. Each is given once, for it is reduced once; what is not here is on the bus."""

    def __init__(self, most: int = _KEPT_BYTES) -> None:
        """`most`: bytes; the oldest go."""
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._bytes, self._most = 0, most

    def put(self, subject: str, content: bytes) -> None:
        self.take(subject)
        self._kept[subject] = content
        self._bytes += len(content)
        while self._bytes > self._most:
            self._bytes -= len(self._kept.popitem(last=False)[1])

    def take(self, subject: str) -> bytes | None:
        """The content, which is not here any more then."""
        content = self._kept.pop(subject, None)
        self._bytes -= len(content or b"")
        return content


class AggregatorDoors:
    """Serves updates and sums."""

    def __init__(self, bus: Bus, enrolled: Enrolled | None = None) -> None:
        self._bus, self._enrolled, self._ledger = bus, enrolled or Enrolled(bus), ledger_of(bus)
        self._steps: OrderedDict[tuple[str, str, str, str], _Step] = OrderedDict()
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self.fresh = FreshUpdates()
        self._written, self._told = Lately(bus.clock, _BELIEVED_S), Lately(bus.clock, _BELIEVED_S)
        handlers = {Door.UPDATE: self._update, Door.EXCHANGE: self._contribution, Door.EXCHANGED: self._sum}
        sums = Shares(bus.clock, per_second=_SUMS_A_SECOND, burst=_SUMS_AT_ONCE)
        shares = {Door.UPDATE: Shares(bus.clock), Door.EXCHANGE: sums, Door.EXCHANGED: sums}
        self._keeper = Doorkeeper(bus, self._enrolled, handlers, shares=shares, refused=_count)

    async def run(self) -> None:
        """Serve until cancelled."""
        handed_in = await self._bus.serve(HANDED_IN.wildcard(), self._whether_handed_in, group=_GROUP)
        try:
            async with self._keeper.serving(_GROUP), asyncio.TaskGroup() as group:
                group.create_task(self._enrolled.watch())
                group.create_task(self._wake())
                group.create_task(self._hear())
        finally:
            await handed_in.stop()

    async def _wake(self) -> None:
        """Tell those who wait for a sum that it is there."""
        async with self._bus.follow(stream_of(EXCHANGED), EXCHANGED.wildcard()) as records:
            async for record in records:
                for event in self._waiting.get(record.subject, ()):
                    event.set()

    async def _hear(self) -> None:
        """Take in for whom steps open."""
        async with self._bus.hear(OPENS.wildcard()) as told:
            async for record in told:
                if record is None:
                    continue
                where = OPENS.parse(record.subject)
                try:
                    names = OpenFor.decode(record.data).participants
                except HanseError as error:
                    _LOG.warning("what was told on %s cannot be read: %s", record.subject, error)
                    continue
                for name in names:
                    self._told.add(OPENED.of(**where, participant=name))

    async def _update(self, request: Request) -> bytes:
        run, step = request.where()
        digest = request.named("digest")
        handed_in = await self._open(request, run, step)
        if len(handed_in.objects | {digest}) > _MOST_OBJECTS:
            raise HanseError(ErrorCode.TOO_LARGE, f"update: more than {_MOST_OBJECTS} objects in step {step}")
        handed_in.objects.add(digest)
        subject = UPDATE.of(project=request.project, run=run, participant=request.participant, digest=digest)
        await self._bus.publish(subject, request.content, headers=inject(), timeout=10.0)
        self.fresh.put(subject, request.content)
        self._written.add(subject)
        await self._bus.tell(WRITTEN.of(**UPDATE.parse(subject)), b"")
        return b""

    async def _whether_handed_in(self, subject: str, _: bytes) -> bytes:
        """Waits for it a little: it is on its way beside the result that names it."""
        update, clock = UPDATE.of(**HANDED_IN.parse(subject)), self._bus.clock
        pause, ends = _WRITTEN_SOON_S, clock.monotonic() + _UPDATE_PARKED_S
        # Mostly it came to this very process, which need not read it again.
        while not await self._written.soon(update, pause) and await self._bus.last(stream_of(UPDATE), update) is None:
            if clock.monotonic() + pause > ends:
                return b"0"
            pause *= 2
        return b"1"

    async def _contribution(self, request: Request) -> bytes:
        run, step = request.where()
        key = request.named("key")
        handed_in = await self._open(request, run, step)
        if key in handed_in.summed:
            return b""  # the first counts; the bus forgets after two minutes that it has had it
        size = len(request.content)
        if sum(handed_in.summed.values()) + size > _MOST_SUMMED:
            raise HanseError(ErrorCode.TOO_LARGE, f"exchange: more than {_MOST_SUMMED} bytes in step {step}")
        await self._require_few_waiting(request, handed_in, size)
        handed_in.waiting[key] = size
        subject = EXCHANGE.of(project=request.project, run=run, step=step, participant=request.participant, key=key)
        await self._bus.publish(subject, request.content, message_id=f"{subject}/first", timeout=10.0)
        handed_in.summed[key] = size
        return b""

    async def _require_few_waiting(self, request: Request, handed_in: _Step, size: int) -> None:
        """A site contributes to few sums that are not made yet.

        Raises:
            HanseError: TOO_LARGE.
        """
        if sum(handed_in.waiting.values()) + size <= _MOST_WAITING:
            return
        run, step = request.where()
        for key in [*handed_in.waiting]:  # which were made, another process may have told the site
            made = EXCHANGED.of(project=request.project, run=run, step=step, key=key)
            if await self._bus.last(stream_of(EXCHANGED), made) is not None:
                handed_in.waiting.pop(key, None)
        if sum(handed_in.waiting.values()) + size > _MOST_WAITING:
            raise HanseError(
                ErrorCode.TOO_LARGE,
                f"exchange: more than {_MOST_WAITING} bytes to sums of step {step} that others have not contributed to",
                hint="an algorithm waits for a sum before it goes on to the next",
            )

    async def _sum(self, request: Request) -> bytes:
        """The sum, waiting for it a little; what it is of does not tell apart who takes part."""
        run, step = request.where()
        handed_in = await self._open(request, run, step)
        subject = EXCHANGED.of(project=request.project, run=run, step=step, key=request.named("key"))
        event = asyncio.Event()
        waiting = self._waiting.setdefault(subject, set())
        waiting.add(event)
        try:
            record = await self._bus.last(stream_of(EXCHANGED), subject)
            if record is None:
                with suppress(TimeoutError):
                    async with self._bus.clock.timeout(_PARKED_S):
                        await event.wait()
                record = await self._bus.last(stream_of(EXCHANGED), subject)
        finally:
            waiting.discard(event)
            if not waiting:
                self._waiting.pop(subject, None)
        if record is None:
            raise HanseError(ErrorCode.TIMEOUT, f"exchange {request.asked.key}: not all have contributed yet")
        handed_in.waiting.pop(request.named("key"), None)
        return record.data

    async def _open(self, request: Request, run: str, step: str) -> _Step:
        """What the site has handed in in this step.

        Raises:
            HanseError: GONE where the step is not open for it.
        """
        where = {"project": request.project, "participant": request.participant, "run": run, "step": step}
        key, now = (request.project, request.participant, run, step), self._bus.clock.monotonic()
        known = self._steps.get(key) or _Step()
        if now >= known.believed_until:
            subject = OPENED.of(**where)
            if not self._told.has(subject) and await self._bus.request(subject, b"") != b"1":
                raise HanseError(ErrorCode.GONE, f"step: {step} of run {run} is not open for {request.participant}")
            known.believed_until = self._told.until(subject) if self._told.has(subject) else now + _BELIEVED_S
            self._ledger.opened(*key)
        self._steps[key] = known
        self._steps.move_to_end(key)
        while len(self._steps) > _STEPS:
            self._steps.popitem(last=False)
        return known


def _count(kind: Door, error: HanseError, project: str, participant: str) -> None:  # noqa: ARG001 - the port's
    if kind is Door.UPDATE:
        REFUSED_UPDATES.add(code=error.code.code)
