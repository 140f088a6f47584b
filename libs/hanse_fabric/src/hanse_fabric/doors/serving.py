"""A service's side of the doors: whoever asks is held against its share, its enrolled key and its own name first."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from hanse_fabric.allowance import Allowance
from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock
from hanse_fabric.doors.byte_ledger import Passed, ledger_of, message_bytes
from hanse_fabric.doors.frames import read_request, verify, write_answer, write_refusal
from hanse_fabric.doors.repeats import Repeats
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.doors import DoorRequest
from hanse_fabric.messages.participants import ParticipantRecord
from hanse_fabric.records import Bucket
from hanse_fabric.set_aside import Aside
from hanse_fabric.subjects import DOORS, PARTICIPANTS, Door
from hanse_fabric.telemetry import inject

_LOG = logging.getLogger(__name__)
_MOST_SITES = 200_000
_WORTH_S = 10.0
"""A request that has waited for its turn so long is not worth answering: its site has asked anew, or soon does."""
_SAID = frozenset({Door.PROGRESS})
"""What is said without waiting for an answer."""


@dataclass(frozen=True, slots=True)
class Request:
    """What an enrolled participant asks; project and participant are those of its token and its signature."""

    kind: Door
    asked: DoorRequest
    content: bytes

    @property
    def project(self) -> str:
        return self.asked.project

    @property
    def participant(self) -> str:
        return self.asked.participant

    def where(self) -> tuple[str, str]:
        """Run and step.

        Raises:
            HanseError: INVALID_INPUT where it names none.
        """
        return self.named("run"), self.named("step")

    def named(self, field: str) -> str:
        """A field of the head that this kind must have."""
        value = getattr(self.asked, field)
        if value is None:
            raise HanseError(ErrorCode.INVALID_INPUT, f"{self.kind}: {field} is not there")
        return str(value)


Handler = Callable[[Request], Awaitable[bytes]]


class Shares:
    """What each participant may ask: so many requests a second, and so many at once. Twice a round is honest, and the
    quickest rounds take less than 50 ms."""

    def __init__(self, clock: Clock, *, per_second: float = 60.0, burst: float = 120.0) -> None:
        self._allowed = Allowance(clock, per_second=per_second, burst=burst, most=_MOST_SITES)

    def take(self, project: str, participant: str) -> None:
        """Count one request.

        Raises:
            HanseError: UNAVAILABLE beyond the share; it is tried again later, as with a server that is away.
        """
        if not self._allowed.take((project, participant)):
            raise HanseError(
                ErrorCode.UNAVAILABLE,
                f"door: {participant} asks more than {self._allowed.per_second:g} times a second",
                hint="ask again a little later",
            )


class Enrolled:
    """The keys of participants, kept current by `watch`."""

    def __init__(self, bus: Bus) -> None:
        self._bucket = Bucket(bus, PARTICIPANTS, ParticipantRecord)
        self._known: dict[tuple[str, str], tuple[ParticipantRecord, int]] = {}

    @property
    def known(self) -> int:
        """How many are known, of all projects; those who were revoked are among them."""
        return len(self._known)

    async def watch(self) -> None:
        """Follow until cancelled."""
        async with self._bucket.watch() as changes:
            async for change in changes:
                if change is None:
                    continue
                who = change.tokens["project"], change.tokens["participant"]
                if change.value is None:
                    self._known.pop(who, None)
                else:
                    self._known[who] = (change.value, change.revision)

    async def require(self, project: str, participant: str) -> ParticipantRecord:
        """Who it is.

        Raises:
            HanseError: FORBIDDEN where it is not enrolled, or was revoked.
        """
        known = self._known.get((project, participant))
        if known is None:
            entry = await self._bucket.get(project=project, participant=participant)
            known = None if entry is None else (entry.value, entry.revision)
        if known is None or known[0].revoked:
            raise HanseError(ErrorCode.FORBIDDEN, f"participant: {participant} is not enrolled, or was revoked")
        return known[0]


@dataclass(frozen=True, slots=True)
class _Answered:
    """An answer, and what its request was found to be about."""

    data: bytes
    run: str | None
    step: str | None

    def __len__(self) -> int:
        return len(self.data)


class Doorkeeper:
    """Serves some kinds of doors. No request ends it: what cannot be read or is refused is counted and answered so.

    However many ask at once, it comes to an end with them: the same request is worked through once, and of kinds that
    whole crowds ask, so many at once that the first are answered while the last still wait.
    """

    def __init__(
        self,
        bus: Bus,
        enrolled: Enrolled,
        handlers: Mapping[Door, Handler],
        *,
        shares: Mapping[Door, Shares],
        at_once: Mapping[Door, int] | None = None,
        refused: Callable[[Door, HanseError, str, str], None] = lambda *_: None,
    ) -> None:
        """`refused` is told of each refusal: kind, error, project and participant. `at_once`: how many requests of a
        kind are worked at together; of other kinds, whose handlers wait for something, any number."""
        self._bus, self._enrolled, self._handlers, self._shares = bus, enrolled, handlers, shares
        self._refused, self._aside, self._ledger = refused, Aside(bus), ledger_of(bus)
        self._repeats = Repeats[_Answered](bus.clock)
        self._turns = {kind: asyncio.Semaphore(most) for kind, most in (at_once or {}).items()}

    @asynccontextmanager
    async def serving(self, group: str) -> AsyncIterator[None]:
        """Serve while inside; of those who serve as `group` one gets each request."""
        async with AsyncExitStack() as stack:

            async def serve(kind: Door) -> None:
                served = await self._bus.serve(DOORS[kind].wildcard(), partial(self._answer, kind), group=group)
                stack.push_async_callback(served.stop)

            # All at once: one after the other, each waits for the server's word. And all to the end, so that those that
            # are served are stopped where one is refused.
            for each in await asyncio.gather(*map(serve, self._handlers), return_exceptions=True):
                if each is not None:
                    raise each
            writing = asyncio.create_task(self._ledger.write(self._bus))
            try:
                yield
            finally:
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)

    async def _answer(self, kind: Door, subject: str, data: bytes) -> bytes:
        tokens = DOORS[kind].parse(subject)
        project, participant = tokens["project"], tokens["participant"]
        try:
            self._shares[kind].take(project, participant)
            same = (subject, hashlib.sha256(data).digest())
            answer = await self._repeats.once(same, partial(self._answer_first, kind, tokens, subject, data))
        except HanseError as error:
            answer = self._refusal(kind, tokens, subject, data, error)
        # The request's headers carry its trace, and nothing else; it is the trace that goes on here.
        up = message_bytes(data, inject())
        passed = Passed(bus_up=up, bus_down=0 if kind in _SAID else len(answer))
        self._ledger.count(project, participant, passed, run=answer.run, step=answer.step)
        return answer.data

    async def _answer_first(self, kind: Door, tokens: Mapping[str, str], subject: str, data: bytes) -> _Answered:
        run, step = None, None
        try:
            async with self._turn(kind):
                request = await self._admitted(kind, tokens, subject, data)
                run, step = request.asked.run, request.asked.step
                return _Answered(write_answer(data, await self._handlers[kind](request)), run, step)
        except HanseError as error:
            return self._refusal(kind, tokens, subject, data, error, run, step)

    def _refusal(
        self, kind: Door, tokens: Mapping[str, str], subject: str, data: bytes, error: HanseError, *about: str | None
    ) -> _Answered:
        self._refused(kind, error, tokens["project"], tokens["participant"])
        _LOG.info("request on %s refused: %s", subject, error)
        run, step = about or (None, None)
        return _Answered(write_refusal(data, error), run, step)

    @asynccontextmanager
    async def _turn(self, kind: Door) -> AsyncIterator[None]:
        if (turns := self._turns.get(kind)) is None:
            yield
            return
        came = self._bus.clock.monotonic()
        async with turns:
            if self._bus.clock.monotonic() - came > _WORTH_S:
                raise HanseError(
                    ErrorCode.UNAVAILABLE, f"door: {kind}: too many ask at once", hint="ask again a little later"
                )
            yield

    async def _admitted(self, kind: Door, tokens: Mapping[str, str], subject: str, data: bytes) -> Request:
        project, participant = tokens["project"], tokens["participant"]
        try:
            asked, content = read_request(data)
        except HanseError as error:
            await self._aside.put(subject, data, error)
            raise
        if (asked.kind, asked.project, asked.participant) != (kind, project, participant):
            raise HanseError(
                ErrorCode.TAMPERED,
                f"request: it says {asked.kind} of {asked.participant} of {asked.project}, and came on {subject}",
            )
        record = await self._enrolled.require(project, participant)
        if tokens["region"] != record.connects_in:
            # A leaf node can bring what a site of another region has signed, and would be told that site's tasks.
            raise HanseError(
                ErrorCode.FORBIDDEN,
                f"region: {participant} is enrolled in {record.connects_in!r}, and asks in {tokens['region']!r}",
            )
        verify(data, record.public_key, participant)
        return Request(kind, asked, content)
