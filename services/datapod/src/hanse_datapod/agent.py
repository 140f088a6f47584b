"""The datapod's loop: follow open tasks, check, fetch, work, write down, hand in. One task at a time.

Order of durable steps for each task: the answer with the update's bytes into the journal, and into the outbox log what
is about to leave; then the update goes out, then the signed result. Killed at any moment, the next start finds the
task still open, and either does it (nothing of it was finished) or hands in the very bytes that were written down.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hanse_datapod.answers import plain_answer
from hanse_datapod.budget import Reserved, SiteBudget
from hanse_datapod.exchanging import exchanging
from hanse_datapod.handin import leaving, link_subject, send
from hanse_datapod.journal import Finished, Journal
from hanse_datapod.masking import check_plan, masked_answer
from hanse_datapod.noise import SiteNoise, is_exchange
from hanse_datapod.outbox import Leaving, Outbox
from hanse_datapod.pairwise import is_pairwise, protocol_answer
from hanse_datapod.policy import Policy
from hanse_datapod.queue import TaskQueue
from hanse_datapod.sessions import known_answer, require_new_session
from hanse_datapod.watch import watch_over
from hanse_datapod.worker.port import WORKED, Worker, WorkOutcome, WorkRequest
from hanse_datapod.workplace import Workplace, masked
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Outcome, Task
from hanse_fabric.schema import DataSchema
from hanse_fabric.site import OpenTask, SiteLink
from hanse_fabric.site.enrol import ALLOWED_SKEW_S
from hanse_fabric.site.link import result_for
from hanse_fabric.subjects import PRESENCE
from hanse_fabric.telemetry.catalogue import TASK_SECONDS, TASKS
from hanse_fabric.telemetry.traces import extract, span

PRESENCE_S = 60.0
_REFUSALS = frozenset(
    {
        ErrorCode.POLICY,
        ErrorCode.CONFLICT,
        ErrorCode.SCHEMA_MISMATCH,
        ErrorCode.NO_SPACE,
        ErrorCode.TAMPERED,
        ErrorCode.NOT_FOUND,
        ErrorCode.UNKNOWN_SCHEMA,
    }
)
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
        journal: Journal,
        outbox: Outbox,
        device: str = "cpu",
    ) -> None:
        self._link = link
        self._worker = worker
        self._home = home
        self._place = Workplace(home)
        self._policy = policy
        self._schema = schema
        self._journal = journal
        self._outbox = outbox
        self._device = device
        self._budget = SiteBudget(home, policy.privacy)
        self._noise = SiteNoise(link, policy)
        self._examples = 0
        self._queue = TaskQueue()
        self._current: _Current | None = None
        self._data_checked = asyncio.Event()
        self._unfit: HanseError | None = None
        self._finishing = threading.Lock()

    async def run(self) -> None:
        """Work until cancelled.

        Raises:
            ExceptionGroup: of HanseError, FORBIDDEN or UNAUTHENTICATED when the hub has revoked this participant.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._check_data(), name="data")
                group.create_task(self._presence(), name="presence")
                group.create_task(self._take_in(), name="tasks")
                group.create_task(self._work_off(), name="work")
        finally:
            self._budget.close()

    async def _check_data(self) -> None:
        """Hold the data against the project's schema. A site with unfit data stays up to say so."""
        try:
            summary = await self._worker.check_data(self._schema)
            self._examples = summary.examples
            _log.info("data checked", extra={"examples": summary.examples, "test_examples": summary.test_examples})
        except HanseError as error:
            _log.error("the data are refused", extra={"code": error.code.code, "reason": error.message})
            self._unfit = error
        self._data_checked.set()

    async def _presence(self) -> None:
        subject = PRESENCE.of(project=self._link.identity.project, participant=self._link.identity.participant)
        while True:
            working_on = self._current.opened.task.run if self._current else None
            try:
                size = len(self._link.presence_message(device=self._device, working_on=working_on).encode())
                await self._write_down(Leaving("presence", subject, size))
                await self._link.presence(device=self._device, working_on=working_on)
            except HanseError as error:
                if error.code in (ErrorCode.FORBIDDEN, ErrorCode.UNAUTHENTICATED):
                    raise
                _log.warning("no sign of life could be sent", extra={"reason": error.message})
            await asyncio.sleep(PRESENCE_S)

    async def _take_in(self) -> None:
        async with self._link.tasks() as tasks:
            async for opened in tasks:
                self._queue.offer(opened)
                current = self._current
                if (
                    current is not None
                    and current.opened.task.run == opened.task.run
                    and current.opened.task.id != opened.task.id
                ):
                    _log.info("superseded", extra={"run": opened.task.run, "step": current.opened.task.step})
                    current.work.cancel()

    async def _work_off(self) -> None:
        while True:
            opened = await self._queue.take()
            work = asyncio.create_task(self._do(opened), name=f"task {opened.task.id}")
            self._current = _Current(opened, work)
            try:
                await asyncio.wait({work})
            finally:
                self._current = None
                if not work.done():
                    work.cancel()
                    await asyncio.wait({work})
            if not work.cancelled():
                work.result()

    async def _do(self, opened: OpenTask) -> None:
        task = opened.task
        if datetime.now(UTC) > task.deadline + timedelta(seconds=ALLOWED_SKEW_S):
            _log.info("its deadline is long over", extra={"run": task.run, "step": task.step})
            return
        with span("datapod.task", parent=extract(opened.headers), run=task.run, step=task.step):
            finished = await asyncio.to_thread(self._known, task)
            if finished is None:
                finished = await self._answer(opened)
            if finished is None:
                return
            try:
                await self._hand_in(opened, finished)
            except HanseError as error:
                _log.warning(
                    "the answer could not be handed in",
                    extra={"run": task.run, "step": task.step, "code": error.code.code, "reason": error.message},
                )
                return
            TASKS.add(outcome=finished.result.outcome.value)
            TASK_SECONDS.observe(time.monotonic() - opened.received, kind=task.kind.value)

    async def _answer(self, opened: OpenTask) -> Finished | None:
        """Do the work and write the answer down; a refusal or failure is an answer too. None: nobody waits for it."""
        task = opened.task
        try:
            return await self._work(opened)
        except HanseError as error:
            reason = error
        except OSError as error:
            reason = HanseError(ErrorCode.INTERNAL, f"the site's disk or system failed: {error}")
        finally:
            self._place.drop_plain(task)
        self._place.drop(task)
        refused = reason.code in _REFUSALS or reason is self._unfit
        _log.warning(
            "refused" if refused else "failed",
            extra={"run": task.run, "step": task.step, "code": reason.code.code, "reason": reason.message},
        )
        if reason.code is ErrorCode.CANCELLED:
            return None
        outcome = Outcome.REFUSED if refused else Outcome.FAILED
        finished = Finished(self._link.sign(result_for(task, outcome, reason=str(reason), code=reason.code.code)))
        # On a full disk the answer goes out all the same; the outbox log has its reserve.
        with suppress(HanseError):
            await asyncio.to_thread(self._journal.finish, task, finished)
        return finished

    async def _work(self, opened: OpenTask) -> Finished:
        task = opened.task
        self._policy.check(task)
        if task.kind not in WORKED and not is_pairwise(task) and not is_exchange(task):
            raise HanseError(
                ErrorCode.UNKNOWN_SCHEMA, f"task of kind {task.kind}: this datapod has no protocol for it",
                hint="upgrade the datapod, or use secure_aggregation.mode compensator",
            )  # fmt: skip
        if task.masking is not None:
            await asyncio.to_thread(check_plan, task, task.masking)
        await self._data_checked.wait()
        if self._unfit is not None:
            raise self._unfit
        if task.kind not in WORKED:
            given = await self._link.fetch(task, seconds=max(1.0, opened.seconds_left)) if task.model else None
            return await asyncio.to_thread(self._finish_protocol, task, given)
        require_new_session(self._journal, task)
        await asyncio.to_thread(self._prepare, task)
        for ref in (task.model, *(task.extras or {}).values()):
            if ref is not None and ref.key is not None:
                await self._write_down(Leaving("link-request", link_subject(task), 0))
        model = await self._link.fetch(task, seconds=max(1.0, opened.seconds_left))
        extras = await self._link.fetch_extras(task, seconds=max(1.0, opened.seconds_left))
        # Before anything is drawn: whatever becomes of the work from here on, it is charged.
        reserved = await asyncio.to_thread(self._budget.reserve, task, examples=self._examples, model=model)
        memory = self._policy.limits.memory_mib
        sums = exchanging(self._link, task, self._write_down, self._policy, examples=self._examples)
        async with sums as exchange:
            request = WorkRequest(
                kind=task.kind,
                config=task.config if reserved is None else task.config | {"privacy": reserved.work},
                seed=task.seed,
                round=task.round,
                model=model,
                output=self._place.worked(task),
                state=self._place.state(task),
                time_limit=max(0.1, min(self._policy.limits.seconds, opened.seconds_left)),
                memory_limit=memory << 20 if memory is not None else None,
                extras=extras,
                trained=task.trained,
                exchange=exchange,
            )
            outcome = await watch_over(self._link, self._worker, request, task, self._write_down)
        if reserved is not None:
            outcome = reserved.covered(outcome)
        return await asyncio.to_thread(self._finish, task, outcome, reserved)

    def _prepare(self, task: Task) -> None:
        self._place.prepare(task)
        self._journal.begin(task)

    def _finish(self, task: Task, outcome: WorkOutcome, reserved: Reserved | None) -> Finished:
        """Make the answer durable. What this returns may leave."""
        with self._finishing:
            # Work that was cancelled too late may have been finished by its thread: that answer stands.
            finished = self._journal.find(task.id)
            if finished is None:
                if task.masking is None or not masked(task):
                    finished = plain_answer(self._link, self._policy, task, outcome)
                else:
                    require_new_session(self._journal, task)
                    finished = masked_answer(
                        self._link, self._policy, task, task.masking, outcome, self._place.output(task),
                        home=self._home, noise=self._noise,
                    )  # fmt: skip
                self._budget.settle(reserved)
                self._journal.finish(task, finished)
            return finished

    def _finish_protocol(self, task: Task, model: Path | None) -> Finished:
        """Answer a task of the masking protocol alone, or of the exchange of noise, durably."""
        with self._finishing:
            finished = self._journal.find(task.id)
            if finished is None:
                if is_exchange(task):
                    finished = self._noise.answer(task, model)
                else:
                    finished = protocol_answer(self._link, self._policy, task, self._home)
                self._journal.finish(task, finished)
            return finished

    def _known(self, task: Task) -> Finished | None:
        with self._finishing:
            return known_answer(self._link, self._journal, self._place, task)

    async def _hand_in(self, opened: OpenTask, finished: Finished) -> None:
        """Send the update, then the result, for as long as the step can be open.

        Raises:
            HanseError: UNAVAILABLE when that time is over; what the hub answered, if it refused.
        """
        task = opened.task
        await self._write_down(*leaving(task, finished))
        await send(self._link, task, finished, self._place.output(task), seconds=max(5.0, opened.seconds_left))

    async def _write_down(self, *leaving: Leaving) -> None:
        await asyncio.to_thread(self._outbox.append, *leaving)
