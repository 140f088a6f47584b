"""The coordinator's doors: sites ask what is open, answer, show life, and get links and tokens.

What a site sends is written to the streams here, under the site's own subject and with a message id of ours, where its
step is open. Workflows read it there: whichever coordinator takes it, the one that has the run hears of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import TypeVar

from hanse_coordinator.absence import note_there
from hanse_coordinator.authority import Credentials
from hanse_coordinator.links import LinkServer
from hanse_coordinator.one_place import OnePlace
from hanse_coordinator.open_steps import open_steps_of
from hanse_coordinator.refusals import count_refusal
from hanse_coordinator.result_room import ResultRoom
from hanse_coordinator.watching.notices import Notices
from hanse_coordinator.watching.sparing import Sparing
from hanse_fabric.bus.port import Bus, Record
from hanse_fabric.doors.byte_ledger import ledger_of
from hanse_fabric.doors.lately import Lately
from hanse_fabric.doors.serving import Doorkeeper, Enrolled, Request, Shares
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Presence, Progress, Result
from hanse_fabric.messages.base import MAX_MESSAGE_BYTES
from hanse_fabric.messages.doors import BESIDE, GivenTask, KnownTasks, OpenTasks
from hanse_fabric.messages.participants import ParticipantRecord
from hanse_fabric.messages.tasks import SLOWEST_PACE_S
from hanse_fabric.names import derive_id
from hanse_fabric.records import Bucket
from hanse_fabric.set_aside import Aside
from hanse_fabric.subjects import (
    HANDED_IN,
    OPENED,
    PARTICIPANTS,
    PRESENCE,
    PROGRESS,
    REFUSED,
    RESULT,
    TASK,
    TELL,
    WRITTEN,
    Door,
    Stream,
)  # fmt: skip
from hanse_fabric.telemetry import inject
from hanse_fabric.telemetry.catalogue import LATE_RESULTS

Said = TypeVar("Said", Presence, Progress)
_LOG = logging.getLogger(__name__)
_TASKS: Stream = TASK.stream or Stream("")
_RESULTS: Stream = RESULT.stream or Stream("")
_GROUP = "coordinators"
_PROGRESS_S = 1.0
_LATE_TOLD_S = 10.0
_AT_ONCE = 256
"""After an outage all sites ask what is open, and show life."""
MOST_ANSWERS = 8
"""Of one site to one step, each other than the others: one counts, and who has lost its answer makes another."""

_STEPS = 200_000
_REMEMBERED = 10_000
_REMEMBERED_S = 10.0
_TOLD_SOON_S = 0.25
"""An update is on its way beside the result that names it; what is told of it may be lost."""
_QUICKEST_PACE_S, _SIGNS_A_SECOND = 20.0, 50.0
_REPLY_BYTES = MAX_MESSAGE_BYTES // 2


class SiteDoors:
    """What the coordinator serves to sites, and what it answers to aggregators about open steps.

    Args:
        results: bytes that the answers to open steps of one project may have; 0: no limit.
    """

    def __init__(
        self, bus: Bus, *, links: LinkServer, credentials: Credentials, instance: str,
        enrolled: Enrolled | None = None, results: int = 0,
    ) -> None:  # fmt: skip
        self._bus, self._links, self._credentials, self._instance = bus, links, credentials, instance
        self._enrolled, self._ledger = enrolled or Enrolled(bus), ledger_of(bus)
        self._one_place = OnePlace(bus, instance)
        self._open_steps, self._handed_in = open_steps_of(bus), Lately(bus.clock, _REMEMBERED_S)
        self._written: OrderedDict[tuple[str, ...], float] = OrderedDict()
        self._answers: OrderedDict[str, dict[str, bool]] = OrderedDict()  # which are written down
        self._sparing, self._room = Sparing(bus.clock), ResultRoom(bus, results)
        handlers = {
            Door.TASKS: self._open_tasks, Door.RESULT: self._result, Door.PROGRESS: self._progress,
            Door.PRESENCE: self._presence, Door.LINK: links.answer_at_door, Door.RENEW: self._renew,
        }  # fmt: skip
        self._aside, self._participants = Aside(bus), Bucket(bus, PARTICIPANTS, ParticipantRecord)
        share = Shares(bus.clock)
        self._keeper = Doorkeeper(
            bus, self._enrolled, handlers, shares=dict.fromkeys(handlers, share),
            at_once=dict.fromkeys((Door.TASKS, Door.PRESENCE), _AT_ONCE), refused=self._count,
        )  # fmt: skip

    async def run(self) -> None:
        """Serve until cancelled."""
        opened = await self._bus.serve(OPENED.wildcard(), self._whether_open, group=_GROUP)
        try:
            async with self._keeper.serving(_GROUP), asyncio.TaskGroup() as group:
                group.create_task(self._enrolled.watch())
                group.create_task(self._hear())
        finally:
            await opened.stop()

    async def _hear(self) -> None:
        """Take in which updates are written down."""
        async with self._bus.hear(WRITTEN.wildcard()) as told:
            async for record in told:
                if record is not None:
                    self._handed_in.add(HANDED_IN.of(**WRITTEN.parse(record.subject)))

    def _count(self, kind: Door, error: HanseError, project: str, participant: str) -> None:
        count_refusal(_COUNTED_AS.get(kind, "request"), error.code.code, project, participant)

    async def _open_tasks(self, request: Request) -> bytes:
        """Of the step that the request names, or all."""
        if request.asked.run is not None:
            run, step = request.where()
            mark = await self._open_mark(request.project, request.participant, run, step)
            return OpenTasks(open=(mark,) if mark else ()).encode()
        known = set(KnownTasks.decode(request.content).marks)
        records = await self._bus.snapshot(_TASKS, _all_tasks(request))
        return _of(records, known).encode()

    async def _result(self, request: Request) -> bytes:
        run, step = request.where()
        if await self._open_mark(request.project, request.participant, run, step) is None:
            self._tell_late(request, run, step)
            raise HanseError(ErrorCode.GONE, f"step: {step} of run {run} is not open for {request.participant}")
        where = {"project": request.project, "run": run, "step": step, "participant": request.participant}
        await self._require_updates(request, where)
        subject = RESULT.of(**where)
        digest = hashlib.sha256(request.content).hexdigest()
        given = self._count_answer(subject, digest)
        # The bus forgets after two minutes that it has had it. What it has stays until its step closes, or a hub that
        # asks anew has removed it.
        if given[digest] and await self._bus.last(_RESULTS, subject) is not None:
            return b""
        await self._room.take(request.project, len(request.content))
        headers = inject() | ({BESIDE: request.asked.beside} if request.asked.beside else {})
        self._open_steps.note_beside(request.asked.beside, **where)
        await self._bus.publish(
            subject, request.content, headers=headers, message_id=derive_id(subject, digest), timeout=10.0
        )
        given[digest] = True
        return b""

    def _count_answer(self, subject: str, digest: str) -> dict[str, bool]:
        """A step's answers are kept until it closes, in room that all projects share: those of one site, by digest.

        Raises:
            HanseError: CONFLICT where its site has answered otherwise so often that it is heard no more.
        """
        given = self._answers.setdefault(subject, {})
        self._answers.move_to_end(subject)
        while len(self._answers) > _STEPS:
            self._answers.popitem(last=False)
        if len(given) >= MOST_ANSWERS and digest not in given:
            raise HanseError(
                ErrorCode.CONFLICT, f"result: {MOST_ANSWERS} others have come for this step, of which the first counts",
                hint="a task is answered once; the same bytes may be sent again",
            )  # fmt: skip
        given.setdefault(digest, False)
        return given

    async def _require_updates(self, request: Request, where: Mapping[str, str]) -> None:
        """A result counts with what it names: sites hand in both at once, and either may arrive first.

        Raises:
            HanseError: UNAVAILABLE where an update that came by no store is not written down.
        """
        try:
            result = Result.decode(request.content)
        except HanseError:
            return  # whoever conducts the run refuses it, and tells people
        self._open_steps.note_read(request.content, result, **where)
        for digest in _small_updates(result):
            update = HANDED_IN.of(
                project=request.project, run=where["run"], participant=request.participant, digest=digest
            )
            if not await self._handed_in.soon(update, _TOLD_SOON_S) and await self._bus.request(update, b"") != b"1":
                raise HanseError(
                    ErrorCode.UNAVAILABLE, f"result: it names {digest}, which was not handed in",
                    hint="hand it in at the door for updates, and the result again",
                )  # fmt: skip

    def _tell_late(self, request: Request, run: str, step: str) -> None:
        """People see that a site's answers come late; they need not see each of them."""
        LATE_RESULTS.add()
        who = request.participant
        if not self._due("late", request.project, run, who, every=_LATE_TOLD_S) or not self._sparing.due(
            request.project, who
        ):
            return
        digest = hashlib.sha256(request.content).hexdigest()
        notices = Notices(self._bus, self._bus.clock, request.project, run, actor=f"coordinator:{self._instance}")
        about = f"{step}/{who}/{digest}"
        notices.event("late-result", about, step=step, participant=who, count=1)
        notices.audit("result.refuse", about, subject=f"participant:{who}", step=step, reason="late: step closed")

    async def _progress(self, request: Request) -> bytes:
        run, step = request.where()
        subject = PROGRESS.of(project=request.project, run=run, participant=request.participant)
        try:
            await self._require_readable(Progress, subject, request)
        except HanseError as error:
            await self._tell_refused(request, error)
            raise
        if self._due("progress", request.project, run, request.participant, every=_PROGRESS_S) and (
            await self._open_mark(request.project, request.participant, run, step) is not None
        ):
            await self._bus.publish(subject, request.content, timeout=2.0)
        return b""

    async def _tell_refused(self, request: Request, error: HanseError) -> None:
        """Progress has no answer, so its site is told otherwise."""
        if self._due("refused", request.project, request.participant, every=_LATE_TOLD_S):
            who = {"project": request.project, "participant": request.participant}
            subject = TELL.of(region=(await self._enrolled.require(**who)).connects_in, **who)
            await self._bus.tell(subject, str(error).encode()[:2000], headers={REFUSED: request.kind.value})

    async def _require_readable(self, kind: type[Said], subject: str, request: Request) -> Said:
        """What people are shown later is looked at here, where its site can be told.

        Raises:
            HanseError: what the decoder raises; TAMPERED where it speaks of somebody else. It is set aside.
        """
        try:
            said = kind.decode(request.content)
            if (said.project, said.participant) != (request.project, request.participant):
                raise HanseError(
                    ErrorCode.TAMPERED,
                    f"{request.kind}: it speaks of {said.participant} of {said.project}, and came from "
                    f"{request.participant} of {request.project}",
                )
        except HanseError as error:
            await self._aside.put(subject, request.content, error)
            raise
        return said

    async def _presence(self, request: Request) -> bytes:
        subject = PRESENCE.of(project=request.project, participant=request.participant)
        await self._one_place.require(await self._require_readable(Presence, subject, request))
        writing = self._bus.publish(subject, request.content, timeout=10.0)
        _, records = await asyncio.gather(writing, self._bus.snapshot(_TASKS, _all_tasks(request)))
        again = pace_of(self._enrolled.known)
        return OpenTasks(open=tuple(_mark(record) for record in records), again=again).encode()

    async def _renew(self, request: Request) -> bytes:
        record = await self._enrolled.require(request.project, request.participant)
        await note_there(self._participants, record, self._bus.clock)
        token = await self._credentials.issue(
            request.project, request.participant, record.bus_key, region=record.connects_in
        )  # fmt: skip
        return token.encode()

    async def _whether_open(self, subject: str, _: bytes) -> bytes:
        tokens = OPENED.parse(subject)
        return b"1" if await self._open_mark(**tokens) is not None else b"0"

    async def _open_mark(self, project: str, participant: str, run: str, step: str) -> str | None:
        """The mark of the step's open task for the participant; None where it has none."""
        where = {"project": project, "participant": participant, "run": run, "step": step}
        mark = self._open_steps.mark(**where)
        if mark is None:
            record = await self._bus.last(_TASKS, TASK.of(**where))
            mark = None if record is None else _mark(record)
        if mark is not None:
            self._ledger.opened(**where)
        return mark

    def _due(self, *what: str, every: float) -> bool:
        """Whether the last one is so many seconds ago; if so this one counts."""
        now = self._bus.clock.monotonic()
        if now - self._written.get(what, -every) < every:
            return False
        self._written[what] = now
        self._written.move_to_end(what)
        while len(self._written) > _REMEMBERED:
            self._written.popitem(last=False)
        return True


def pace_of(sites: int) -> float:
    """Seconds between a site's signs of life, so that a killed one is shown as away within a minute; of so many sites
    that they would be a hub's whole work, a minute. Pure."""
    return min(max(_QUICKEST_PACE_S, sites / _SIGNS_A_SECOND), SLOWEST_PACE_S)


_COUNTED_AS = {Door.RESULT: "result", Door.LINK: "link"}


def _small_updates(result: Result) -> tuple[str, ...]:
    """Digests of what a result names that is not in the store, once each."""
    refs = (result.update, result.tally, *(result.extras or {}).values())
    return tuple(dict.fromkeys(ref.digest for ref in refs if ref is not None and ref.key is None))


def _all_tasks(request: Request) -> str:
    return TASK.wildcard(project=request.project, participant=request.participant)


def mark_of(subject: str, sequence: int) -> str:
    """Tells one publication of a task from all others."""
    tokens = TASK.parse(subject)
    return f"{tokens['run']}.{tokens['step']}.{sequence}"


def _mark(record: Record) -> str:
    return mark_of(record.subject, record.sequence)


def _of(records: list[Record], known: set[str]) -> OpenTasks:
    """All marks, and the oldest of the tasks that are not known, as many as one answer holds."""
    given: list[GivenTask] = []
    size = 0
    for record in records:
        size += len(record.data)
        if _mark(record) not in known and (not given or size <= _REPLY_BYTES):
            trace = {name: value for name, value in record.headers.items() if not name.startswith("Nats-")}
            given.append(GivenTask.model_construct(mark=_mark(record), headers=trace, data=record.data))
    return OpenTasks.model_construct(open=tuple(_mark(record) for record in records), tasks=tuple(given))
