"""The datapod's loop: it follows open tasks and works them off. Training tasks are done one at a time; several steps of
studies run at once, so that one computes while others are fetched and sent. `task_work` says what is done with a task.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path

from hanse_datapod.agent.data_check import DataCheck
from hanse_datapod.agent.decisions import Decisions
from hanse_datapod.agent.task_queue import TaskQueue, makes_way
from hanse_datapod.agent.task_work import TaskWork
from hanse_datapod.agent.telling import Telling
from hanse_datapod.agent.terms import TermsHere
from hanse_datapod.home.folders import TaskFolders
from hanse_datapod.home.journal import TaskJournal
from hanse_datapod.home.now import Now
from hanse_datapod.home.outbox import Leaving, Outbox
from hanse_datapod.home.place import told_place
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.study.lanes import StudyLanes
from hanse_datapod.study.tasks import belongs_to_study
from hanse_datapod.worker.port import Worker
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import TaskKind
from hanse_fabric.subjects import PRESENCE
from hanse_fabric.waiting import first_of
from hanse_schemas.schema import DataSchema
from hanse_site import OpenTask, SiteLink
from hanse_site.link import SignOfLife

MOST_QUESTIONS = 16
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Current:
    opened: OpenTask
    work: asyncio.Task[None]


class Agent:
    """One participant at work. `run` goes on until it is cancelled; cancelling is safe at any moment."""

    def __init__(
        self,
        link: SiteLink,
        worker: Worker,
        *,
        home: Path,
        policy: Policy,
        schema: DataSchema,
        journal: TaskJournal,
        outbox: Outbox,
        studies_at_once: int = 2,
    ) -> None:
        self._link, self._clock, self._home = link, link.bus.clock, home
        self._outbox = outbox
        self._protocols = policy.protocols
        self._telling = Telling(home, policy, link.identity.project)
        self._worker = worker
        self._now = now = Now(home, self._clock)
        self._data = DataCheck(worker, schema, now)
        folders = TaskFolders(home)
        self._terms = TermsHere(link.identity, home, policy.terms, outbox, self._clock)
        self._task_work = TaskWork(
            link, worker, home=home, folders=folders, policy=policy, journal=journal, outbox=outbox, data=self._data,
            now=now, terms=self._terms,
        )  # fmt: skip
        self._news = asyncio.Event()
        self._decisions = Decisions(home, outbox, self._clock, self._give_up, self._news.set)
        self._queue = TaskQueue(self._clock)
        self._studies = StudyLanes(link, worker, folders, self._do_when_let, lanes=studies_at_once)
        self._questions: asyncio.Queue[OpenTask] = asyncio.Queue(MOST_QUESTIONS)
        self._current: _Current | None = None

    async def run(self) -> None:
        """Work until cancelled.

        Raises:
            ExceptionGroup: of HanseError, FORBIDDEN or UNAUTHENTICATED when the hub has revoked this participant;
                CONFLICT where its home runs in another place, too.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._data.run(), name="data")
                group.create_task(self._presence(), name="presence")
                group.create_task(self._take_in(), name="tasks")
                group.create_task(self._work_off(), name="work")
                group.create_task(self._studies.run(), name="studies")
                group.create_task(self._answer_questions(), name="questions")
                group.create_task(self._decisions.follow(), name="decisions")
                group.create_task(self._terms.follow(), name="terms")
                group.create_task(self._now.keep(), name="now")
        finally:
            self._task_work.close()

    async def _presence(self) -> None:
        subject = PRESENCE.of(project=self._link.identity.project, participant=self._link.identity.participant)
        place: str | None = None
        while True:
            self._news.clear()
            working_on = self._current.opened.task.run if self._current else self._studies.working_on
            device = await asyncio.to_thread(lambda: self._worker.device)
            try:
                place = place or await asyncio.to_thread(told_place, self._home, self._link.identity.signing_key)
                told: SignOfLife = {
                    "working_on": working_on, "protocols": self._protocols,
                    "unfit": self._data.unfit is not None or None, "place": place,
                    **await asyncio.to_thread(self._telling.fields, device),
                }  # fmt: skip
                size = len(self._link.presence_message(**told).encode())
                await self._write_down(Leaving("presence", subject, size))
                await self._link.presence(**told)
            except HanseError as error:
                if error.code in (ErrorCode.FORBIDDEN, ErrorCode.UNAUTHENTICATED, ErrorCode.CONFLICT):
                    raise
                _log.warning("no sign of life could be sent", extra={"reason": error.message})
            await self._until_next(device)

    async def _until_next(self, device: str) -> None:
        """Wait for the next sign of life: sooner, where a pause begins or ends, a paused site has done the last that it
        had in hand, or the first look at the data has found another device, or has refused them."""
        looking = () if self._data.looked.is_set() else (self._otherwise(device),)
        await first_of(self._clock.sleep(self._link.pace), self._news.wait(), *looking)

    async def _otherwise(self, device: str) -> None:
        """Return once the first look at the data has found what the last sign of life did not tell."""
        await self._data.looked.wait()
        if self._data.unfit is None and await asyncio.to_thread(lambda: self._worker.device) == device:
            await self._news.wait()

    async def _take_in(self) -> None:
        async with self._link.tasks() as tasks:
            async for opened in tasks:
                if opened.task.kind is TaskKind.CHECK:
                    self._take_question(opened)
                    continue
                if belongs_to_study(opened.task):
                    await self._studies.offer(opened)
                    continue
                self._queue.offer(opened)
                current = self._current
                if (
                    current is not None
                    and current.opened.task.run == opened.task.run
                    and current.opened.task.id != opened.task.id
                ):
                    _log.info("superseded", extra={"run": opened.task.run, "step": current.opened.task.step})
                    current.work.cancel()
                elif current is not None and makes_way(current.opened.task, opened.task):
                    _log.info("makes way", extra={"run": current.opened.task.run, "to": opened.task.run})
                    self._queue.put_back(current.opened)
                    current.work.cancel()

    def _take_question(self, opened: OpenTask) -> None:
        """What a site would do of a job is said while it works for another. Whoever asks too much is not heard."""
        try:
            self._questions.put_nowait(opened)
        except asyncio.QueueFull:
            _log.warning("too many questions at once", extra={"run": opened.task.run})

    async def _answer_questions(self) -> None:
        while True:
            await self._do_when_let(await self._questions.get())

    async def _do_when_let(self, opened: OpenTask) -> None:
        await self._decisions.until_resumed()
        await self._task_work.do(opened)
        self._tell_if_last()

    def _tell_if_last(self) -> None:
        """The hub waits for a paused site as long as that has work in hand."""
        if self._decisions.paused:
            self._news.set()

    def _give_up(self) -> None:
        """Stop the work in hand. It is done again once tasks may begin, if it is still open then."""
        if self._current is not None:
            self._queue.put_back(self._current.opened)
            self._current.work.cancel()
        self._studies.give_up()

    async def _work_off(self) -> None:
        while True:
            await self._decisions.until_resumed()
            opened = await self._queue.take()
            if self._decisions.paused:
                self._queue.put_back(opened)
                continue
            work = asyncio.create_task(self._task_work.do(opened), name=f"task {opened.task.id}")
            self._current = _Current(opened, work)
            try:
                await asyncio.wait({work})
            finally:
                self._current = None
                if not work.done():
                    work.cancel()
                    await asyncio.wait({work})
            self._tell_if_last()
            if not work.cancelled():
                work.result()

    async def _write_down(self, *leaving: Leaving) -> None:
        await asyncio.to_thread(self._outbox.append, *leaving)
