"""Presigned links for participants: to fetch an open task's model, and to upload updates to it, part by part.

What a participant may ask for follows from its open task: no task, no link, and an upload that is not ended by then
never is. Nothing is kept here, so any coordinator answers any request.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from datetime import datetime, timedelta

from hanse_coordinator.quotas import ProjectQuotas
from hanse_coordinator.records import Buckets
from hanse_coordinator.refusals import count_refusal
from hanse_coordinator.runs.settings import WorkflowSettings
from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock
from hanse_fabric.doors.byte_ledger import Passed, ledger_of
from hanse_fabric.doors.serving import Request
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Link, LinkReply, LinkRequest, ObjectRef, Task
from hanse_fabric.messages.objects import update_key
from hanse_fabric.messages.uploads import UploadStep
from hanse_fabric.set_aside import Aside
from hanse_fabric.store.port import ObjectStore
from hanse_fabric.store.uploads import go_on, part_size
from hanse_fabric.subjects import LINK, TASK, Stream
from hanse_workflows.answers import largest_update
from hanse_workflows.encoding import model_of

_LOG = logging.getLogger(__name__)
_TASKS: Stream = TASK.stream or Stream("")
_SHORTEST = timedelta(minutes=1)
_LONGEST = timedelta(hours=1)
_TASKS_REMEMBERED = 200_000
MOST_UPLOADS, MOST_OF_THE_LARGEST = 32, 2
"""What a site announces for one task is so many times as large as its largest update at most (extras, a tally, and
uploads that begin anew), and so many times as the largest model. Else it takes the project's day from other sites."""


class LinkServer:
    """Answers LinkRequests of participants."""

    def __init__(
        self, *, bus: Bus, store: ObjectStore, buckets: Buckets, clock: Clock, settings: WorkflowSettings,
        quotas: ProjectQuotas,
    ) -> None:  # fmt: skip
        self._quotas = quotas
        self._bus, self._store, self._buckets, self._clock, self._settings = bus, store, buckets, clock, settings
        self._aside = Aside(bus)
        self._announced: OrderedDict[tuple[str, str, str], int] = OrderedDict()

    async def run(self) -> None:
        """Serve until cancelled."""
        subscription = await self._bus.serve(LINK.wildcard(), self.answer, group="coordinators")
        try:
            await asyncio.Event().wait()
        finally:
            await subscription.stop()

    async def answer_at_door(self, request: Request) -> bytes:
        """The reply to a request that came by the door."""
        who = {"project": request.project, "participant": request.participant}
        return (await self._reply(who, LinkRequest.decode(request.content))).encode()

    async def answer(self, subject: str, data: bytes) -> bytes:
        """The reply to one request; a refusal names its reason."""
        try:
            request = LinkRequest.decode(data)
        except HanseError as error:
            await self._aside.put(subject, data, error)
            return LinkReply(code=error.code.code, message=str(error)[:2000]).encode()
        try:
            reply = await self._reply(LINK.parse(subject), request)
        except HanseError as error:
            tokens = LINK.parse(subject)
            count_refusal("link", error.code.code, tokens["project"], tokens["participant"])
            _LOG.info("link on %s refused: %s", subject, error)
            reply = LinkReply(code=error.code.code, message=str(error))
        return reply.encode()

    async def _reply(self, tokens: dict[str, str], request: LinkRequest) -> LinkReply:
        if (request.project, request.participant) != (tokens["project"], tokens["participant"]):
            raise HanseError(
                ErrorCode.FORBIDDEN,
                f"participant: {request.participant} of {request.project} is not {tokens['participant']} of "
                f"{tokens['project']}, who asks",
            )
        task = await self._open_task(request)
        expires_in = _validity(task.deadline, self._clock.now())
        if request.put is not None:
            step = _step_to_put(request)
            largest = largest_update(model_of(task), task.masking, self._settings.largest_model)
            _check_size(request.put, largest)
            if step.digests:  # else there are no more links
                self._take_share(task, request.put.size, step.upload, largest)
                await self._quotas.take_upload(request.project, request.put.size, step.upload)
            key = update_key(request.project, request.run, request.participant, task.id, request.put.digest)
            state = await asyncio.to_thread(go_on, self._store, key, request.put, step, expires_in)
            if state.upload:
                self._quotas.begun(request.project, state.upload, request.put.size)
            up = sum(part_size(request.put.size, part.number) for part in state.parts)
            self._count(request, Passed(store_up=up))
            return LinkReply(upload=state)
        wanted = _to_get(request, task)
        key = str(wanted.key)
        url = await asyncio.to_thread(self._store.link_get, key, expires_in)
        self._count(request, Passed(store_down=wanted.size))
        return LinkReply(link=Link(url=url, key=key, expires_at=self._clock.now() + expires_in))

    def _take_share(self, task: Task, size: int, upload: str, largest: int) -> None:
        """Count what a site announces for one task.

        Raises:
            HanseError: QUOTA beyond its share.
        """
        who = task.project, task.participant, task.id
        most = min(MOST_UPLOADS * largest, MOST_OF_THE_LARGEST * self._settings.largest_model)
        announced = self._announced.get(who, 0) + self._quotas.more_than_begun(task.project, size, upload)
        if announced > most:
            raise HanseError(
                ErrorCode.QUOTA,
                f"put.size: {announced} bytes with those of before, at most {most} are uploaded for one task",
                hint="wait for the next task",
            )
        self._announced[who] = announced
        self._announced.move_to_end(who)
        while len(self._announced) > _TASKS_REMEMBERED:
            self._announced.popitem(last=False)

    def _count(self, request: LinkRequest, passed: Passed) -> None:
        """Count what a link is given for; its way is not by the hub's services."""
        where = {"run": request.run, "step": request.step}
        ledger_of(self._bus).opened(request.project, request.participant, **where)
        ledger_of(self._bus).count(request.project, request.participant, passed, **where)

    async def _open_task(self, request: LinkRequest) -> Task:
        member = await self._buckets.participants.get(project=request.project, participant=request.participant)
        if member is None or member.value.revoked:
            raise HanseError(ErrorCode.FORBIDDEN, f"participant: {request.participant} is not enrolled, or was revoked")
        subject = TASK.of(project=request.project, participant=request.participant, run=request.run, step=request.step)
        record = await self._bus.last(_TASKS, subject)
        if record is None:
            raise HanseError(
                ErrorCode.GONE,
                f"step: {request.step} of run {request.run} is not open for {request.participant}",
                hint="the step has closed; wait for the next task",
            )
        return Task.decode(record.data)


def _validity(deadline: datetime, now: datetime) -> timedelta:
    """Of a link: until the task's deadline; who needs longer asks again. Of a part, the upload's end ends it before."""
    return min(max(deadline - now, _SHORTEST), _LONGEST)


def _step_to_put(request: LinkRequest) -> UploadStep:
    if request.get is not None:
        raise HanseError(ErrorCode.INVALID_INPUT, "put, get: both are given, one was expected")
    if request.upload is None:
        raise HanseError(
            ErrorCode.FORBIDDEN, "put: this hub gives links for the parts of an upload alone, whose bytes are named",
            hint="upgrade the site's software (it is of release 0.1.0, whose links could be used for other bytes)",
        )  # fmt: skip
    return request.upload


def _check_size(update: ObjectRef, largest: int) -> None:
    if update.size > largest:
        raise HanseError(
            ErrorCode.TOO_LARGE,
            f"put.size: {update.size} bytes are more than the {largest} that this task's model allows",
        )


def _to_get(request: LinkRequest, task: Task) -> ObjectRef:
    key = request.get
    if key is None:
        raise HanseError(ErrorCode.INVALID_INPUT, "put, get: neither is given, one was expected")
    # Each participant's task may name another resting place of the same model, but never another object.
    ways = [delta.ref for delta in task.deltas or ()]
    named = {ref.key: ref for ref in (task.model, *(task.extras or {}).values(), *ways) if ref is not None}
    if key not in named or not key.startswith(f"models/{request.project}/"):
        raise HanseError(
            ErrorCode.FORBIDDEN,
            f"get: {key!r} is not the model of the open task, nor leads to it, nor is one of its extras",
        )
    return named[key]
