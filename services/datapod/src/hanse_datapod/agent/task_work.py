"""One task, from the bus to its answer: check, fetch, work, write down, hand in.

The durable steps of a task, in this order: the answer with the update's bytes goes into the journal; what is about to
leave goes into the outbox log; the update is sent; the signed result is sent. A datapod that is killed finds the task
still open at its next start. If the answer is in the journal, it sends those very bytes; else it does the task again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from hanse_datapod.agent.data_check import DataCheck
from hanse_datapod.agent.decisions import until_let_out
from hanse_datapod.agent.deltas import applied
from hanse_datapod.agent.preflight import Preflight, tells_examples
from hanse_datapod.agent.sums_under_way import open_sums
from hanse_datapod.agent.task_config import check_config
from hanse_datapod.agent.terms import TermsHere
from hanse_datapod.agent.watched_work import watch_over
from hanse_datapod.answers.delivery import asked_link, outbox_entries, send
from hanse_datapod.answers.plain import plain_answer
from hanse_datapod.answers.withheld import of_the_data, of_the_system, unforeseen
from hanse_datapod.home.approvals import with_approved
from hanse_datapod.home.folders import TaskFolders, masked
from hanse_datapod.home.journal import FinishedTask, TaskJournal
from hanse_datapod.home.moved import Moved
from hanse_datapod.home.now import Now
from hanse_datapod.home.outbox import Leaving, Outbox
from hanse_datapod.home.runs import Counted, Runs
from hanse_datapod.masking.answer import masked_answer
from hanse_datapod.masking.binding import check_binding
from hanse_datapod.masking.pairwise import is_pairwise, protocol_answer
from hanse_datapod.masking.plan import check_plan, check_shares, updates_wanted
from hanse_datapod.masking.remembered import Remembered
from hanse_datapod.masking.sessions import known_answer, require_new_session
from hanse_datapod.policy.questions import Questions
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.privacy.budget import Reservation, SiteBudget
from hanse_datapod.privacy.noise import SiteNoise, is_exchange
from hanse_datapod.privacy.shared_turns import SharedTurns, check_members, is_shared
from hanse_datapod.study.answers import check_answer, plain_study_answer
from hanse_datapod.study.tasks import is_study_step
from hanse_datapod.worker.port import WORKER_KINDS, Worker, WorkOutcome, WorkRequest
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ObjectRef, Outcome, Task, TaskKind
from hanse_fabric.telemetry.catalogue import TASK_SECONDS, TASKS
from hanse_fabric.telemetry.traces import extract, span
from hanse_privacy.witness import beside, found_beside, is_own, signed_head
from hanse_schemas.http.joining import ALLOWED_SKEW_S
from hanse_site import OpenTask, SiteLink
from hanse_site.link import result_for

_REFUSALS = frozenset(
    {
        ErrorCode.POLICY,
        ErrorCode.CONFLICT,
        ErrorCode.SCHEMA_MISMATCH,
        ErrorCode.NO_SPACE,
        ErrorCode.TAMPERED,
        ErrorCode.NOT_FOUND,
        ErrorCode.UNKNOWN_SCHEMA,
        ErrorCode.NO_DEVICE,
    }
)
_log = logging.getLogger(__name__)


class TaskWork:
    """Does a site's tasks, several at once where they are a study's.

    Args:
        data: whose tasks wait until the data were held against the project's schema.
    """

    def __init__(
        self, link: SiteLink, worker: Worker, *, home: Path, folders: TaskFolders, policy: Policy, journal: TaskJournal,
        outbox: Outbox, data: DataCheck, now: Now, terms: TermsHere,
    ) -> None:  # fmt: skip
        self._link, self._worker, self._clock = link, worker, link.bus.clock
        self._home, self._folders = home, folders
        self._policy, self._journal, self._terms = policy, journal, terms
        self._outbox, self._data, self._now = outbox, data, now
        key = link.identity.signing_key
        self._budget = SiteBudget(
            home, policy.privacy, self._clock, key=key, answered=lambda: journal.charged,
            hidden=not tells_examples(policy),
        )  # fmt: skip
        self._noise, self._turns = SiteNoise(link, policy, home), SharedTurns(home)
        self._runs, self._moved = Runs(home), Moved(home)
        self._remembered = Remembered(home, policy, self._clock, lambda: data.state)
        self._questions = Questions()
        self._preflight = Preflight(
            policy, self._allowed, link.identity.schema, worker.kinds, data, self._budget, terms.check
        )  # fmt: skip
        self._finishing = threading.Lock()

    def close(self) -> None:
        self._budget.close()

    def _allowed(self) -> Policy:
        """The policy, with the code that was approved meanwhile. Blocks."""
        return with_approved(self._policy, self._home)

    async def do(self, opened: OpenTask) -> None:
        """Do a task and hand its answer in. Cancelling is safe at any moment."""
        task = opened.task
        if self._clock.now() > task.deadline + timedelta(seconds=ALLOWED_SKEW_S):
            _log.info("its deadline is long over", extra={"run": task.run, "step": task.step})
            return
        with span("datapod.task", parent=extract(opened.headers), run=task.run, step=task.step):
            entered = await asyncio.to_thread(self._enter, opened)
            finished = entered if isinstance(entered, FinishedTask) else await self._answer(opened, entered)
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
            outcome = finished.result.outcome.value
            _log.info("answered", extra={"run": task.run, "step": task.step, "outcome": outcome})
            TASKS.add(outcome=outcome)
            TASK_SECONDS.observe(self._clock.monotonic() - opened.received, kind=task.kind.value)

    def _enter(self, opened: OpenTask) -> FinishedTask | Exception | None:
        """The answer, where it is known; else what keeps the site from beginning, or None. Blocks."""
        known = self._known(opened.task)
        if known is not None:
            return known
        try:
            check_config(opened.task)
            if opened.task.kind is not TaskKind.CHECK:
                self._admit(opened)
        except Exception as reason:
            return reason
        return None

    async def _answer(self, opened: OpenTask, refusal: Exception | None) -> FinishedTask | None:
        """Do the work and write the answer down; a refusal or failure is an answer too. None: nobody waits for it.

        Args:
            refusal: why it is not even begun.
        """
        task = opened.task
        try:
            if refusal is not None:
                raise refusal
            return await self._work(opened)
        except HanseError as error:
            reason = error
        except OSError as error:
            reason = of_the_system(task, error)
        # No task may end the site's work on others, whatever stands in it.
        except Exception as error:
            _log.exception("a task has failed as nobody foresaw", extra={"run": task.run, "step": task.step})
            reason = unforeseen(task, error)
        finally:
            self._folders.drop_plain(task)
            self._now.end(task)
        self._folders.drop(task)
        # A study's faulty files stay faulty, so the hub need not ask again; nor need it where the task itself is.
        faulty = reason.code is ErrorCode.INVALID_INPUT and (is_study_step(task) or reason is refusal)
        refused = reason.code in _REFUSALS or reason is self._data.unfit or faulty
        _log.warning(
            "refused" if refused else "failed",
            extra={"run": task.run, "step": task.step, "code": reason.code.code, "reason": reason.whole},
        )
        if reason.code is ErrorCode.CANCELLED:
            return None
        outcome = Outcome.REFUSED if refused else Outcome.FAILED
        told = FinishedTask(result_for(task, outcome, reason=str(reason), code=reason.code.code))
        finished = await asyncio.to_thread(self._signed, task, told)
        # The answer is sent even when the journal's disk is full; the outbox log has a reserve for it.
        with suppress(HanseError):
            await asyncio.to_thread(self._journal.finish, task, finished)
        return finished

    async def _work(self, opened: OpenTask) -> FinishedTask:
        task = opened.task
        if task.kind is TaskKind.CHECK:
            await self._data.looked.wait()
            return await asyncio.to_thread(self._check, opened)
        with of_the_data(task):
            examples = await self._data.examples()
        if task.kind not in WORKER_KINDS:
            given = await self._fetch(opened) if task.model else None
            return await asyncio.to_thread(self._finish_protocol, task, given)
        await asyncio.to_thread(self._begin, task)
        model = await self._fetch(opened)
        extras = await self._link.fetch_extras(task, seconds=max(1.0, opened.seconds_left))
        # Charged before any noise is drawn; the charge stays even if the work fails.
        reserved = None
        if task.privacy is not None:
            reserved = await asyncio.to_thread(
                self._budget.reserve, task, examples=examples, model=model, units=self._data.units
            )
        try:
            outcome = await self._outcome(opened, reserved, examples, model, extras)
            return await asyncio.to_thread(self._finish, task, outcome, reserved)
        except Exception as error:
            # That it failed leaves, and may be of the data: it is paid, and the same task again is paid again.
            if not (isinstance(error, HanseError) and error.code is ErrorCode.CANCELLED):
                await asyncio.to_thread(self._budget.settle, reserved)
            raise

    async def _fetch(self, opened: OpenTask) -> Path | None:
        """The task's model: made of an older one that is here, where the task says how, or fetched."""
        task = opened.task

        async def whole() -> None:
            await self._write_down(asked_link(task))
            if self._policy.limits.mib_a_day is not None:
                await asyncio.to_thread(self._moved.sent, (task.model,), self._clock.now().timestamp())

        return await self._link.fetch(
            task, seconds=max(1.0, opened.seconds_left), apply=applied if task.deltas else None, whole=whole
        )  # fmt: skip

    async def _outcome(
        self, opened: OpenTask, reserved: Reservation | None, examples: int, model: Path | None,
        extras: Mapping[str, Path],
    ) -> WorkOutcome:  # fmt: skip
        """What the worker makes of a task that is charged."""
        task, shared = opened.task, is_shared(opened.task)
        if shared and (known := await asyncio.to_thread(self._turns.known, task, model, self._folders)) is not None:
            return known
        memory = self._policy.limits.memory_mib
        sums = open_sums(
            self._link,
            task,
            self._write_down,
            self._policy,
            examples=examples,
            home=self._home,
            remembered=self._remembered,
        )
        async with sums as exchange:
            request = WorkRequest(
                kind=task.kind,
                config=task.config if reserved is None else task.config | {"privacy": reserved.work},
                seed=task.seed,
                round=task.round,
                model=model,
                output=self._folders.worker_output(task),
                state=self._folders.state(task),
                time_limit=max(0.1, min(self._policy.limits.seconds, opened.seconds_left)),
                memory_limit=memory << 20 if memory is not None else None,
                extras=extras,
                trained=task.trained,
                exchange=exchange,
                processes=self._policy.limits.processes,
            )
            try:
                with of_the_data(task):
                    outcome = await watch_over(
                        self._link, self._worker, request, task, self._write_down, self._policy.privacy, self._now
                    )  # fmt: skip
                    outcome = await asyncio.to_thread(self._folders.take, task, outcome)
            except HanseError as error:
                if reserved is None:
                    raise
                outcome = reserved.without_answer(task, error, examples)
        kept = outcome if reserved is None else reserved.keep_covered(outcome)
        return await asyncio.to_thread(self._turns.keep, task, kept) if shared else kept

    def _check(self, opened: OpenTask) -> FinishedTask:
        """Say what the site would do of a job, and write the answer down. Blocks."""
        task = opened.task
        self._look_back(opened)
        self._count(task, self._policy.asking.most_questions(cautious=self._policy.masking.required), "questions")
        said = self._preflight.answer(task)
        with self._finishing:
            result = result_for(task).model_copy(update={"payload": said.encode()})
            finished = FinishedTask(self._link.sign(result))
            self._journal.finish(task, finished)
            return finished

    def _count(self, task: Task, most: int | None, of: Counted) -> None:
        """Count what is asked among what was asked that day.

        Args:
            most: so many may be; None: any number, and nothing is counted.

        Raises:
            HanseError: POLICY.
        """
        if most is not None:
            asked = task.id if of == "evaluations" else task.run
            self._runs.begin(asked, self._clock.now().timestamp(), most, of=of)

    def _admit(self, opened: OpenTask) -> None:
        """Refuse what the site's policy, its log or its kind of data do not allow. Blocks."""
        task = opened.task
        self._look_back(opened)
        self._terms.check(task)
        self._allowed().check(task)
        self._policy.check_asking(task, self._link.identity.schema)
        self._questions.check(task)
        if task.kind in WORKER_KINDS - {TaskKind.INITIALIZE}:
            asking, cautious = self._policy.asking, self._policy.masking.required
            self._count(task, asking.most_runs(cautious=cautious), "runs")
            if task.kind is TaskKind.EVALUATE:
                self._count(task, asking.most_evaluations(cautious=cautious), "evaluations")
        if task.kind not in WORKER_KINDS and not is_pairwise(task) and not is_exchange(task):
            raise HanseError(
                ErrorCode.UNKNOWN_SCHEMA, f"task of kind {task.kind}: this datapod has no protocol for it",
                hint="upgrade the datapod, or use secure_aggregation.mode compensator",
            )  # fmt: skip
        if task.kind in WORKER_KINDS and task.kind not in self._worker.kinds:
            raise _other_data(task)
        if task.masking is not None:
            check_plan(task, task.masking)
            check_shares(self._policy, task)
            check_members(task, updates_wanted(self._policy, task, task.masking))
            check_binding(self._policy, task, self._home)

    def _begin(self, task: Task) -> None:
        """What is written down, and what is still refused, before a worker's task is fetched. Blocks."""
        if task.kind in (TaskKind.TRAIN, TaskKind.EVALUATE):
            self._worker.require(task.config)
        require_new_session(self._journal, task)
        if (mib := self._policy.limits.mib_a_day) is not None:
            self._moved.begin(self._to_fetch(task), self._clock.now().timestamp(), mib)
        self._remembered.check(task)
        self._folders.prepare(task)
        self._journal.begin(task)
        self._now.begin(task)
        fetched = [ref for ref in self._to_fetch(task) if ref.key]
        if fetched:
            self._outbox.append(*[asked_link(task)] * len(fetched))

    def _to_fetch(self, task: Task) -> tuple[ObjectRef, ...]:
        """What the task needs of the hub, of its model and extras."""
        return (*self._link.to_fetch(task), *(task.extras or {}).values())

    def _look_back(self, opened: OpenTask) -> None:
        """Hold the log of what left against its newest head that the hub has seen, if this site has signed that.

        Raises:
            HanseError: TAMPERED.
        """
        task, head = opened.task, found_beside(opened.headers)
        if head is not None and not self._outbox.knows(head):
            key = self._link.identity.signing_key.verify_key
            if not is_own(head, project=task.project, participant=task.participant, key=key, of="outbox"):
                head = None
        self._outbox.require(head)

    def _head(self, task: Task) -> dict[str, str]:
        """The header with the head of the log of what left, as it is now."""
        key, (entries, digest) = self._link.identity.signing_key, self._outbox.head()
        head = signed_head(
            entries, digest, project=task.project, participant=task.participant, key=key, of="outbox"
        )  # fmt: skip
        return beside(head)

    def _finish(self, task: Task, outcome: WorkOutcome, reserved: Reservation | None) -> FinishedTask:
        """Make the answer durable. What this returns may leave."""
        with self._finishing:
            # The thread of cancelled work may have finished it already: then that answer stands.
            finished = self._journal.find(task.id)
            if finished is None:
                if is_study_step(task):
                    check_answer(self._policy, task, outcome)
                elif task.kind is TaskKind.PREPARE and task.privacy is None:
                    with of_the_data(task):
                        self._policy.check_cells(outcome.data)
                elif task.kind is TaskKind.EVALUATE:
                    with of_the_data(task):
                        self._policy.check_subgroups(task, outcome.data)
                if is_study_step(task) and task.masking is None:
                    finished = plain_study_answer(self._link, task, outcome)
                elif task.masking is None or not masked(task):
                    counted = reserved is not None and reserved.counts
                    finished = plain_answer(self._link, self._policy, task, outcome, counted=counted)
                else:
                    require_new_session(self._journal, task)
                    made = masked_answer(
                        self._link, self._policy, task, task.masking, outcome, self._folders.output(task),
                        home=self._home, remembered=self._remembered, noise=self._noise,
                    )  # fmt: skip
                    finished = made.finished
                    with of_the_data(task):
                        self._remembered.check_people(task, outcome.data, made.tag)
                    self._remembered.claim(task, finished, outcome.data, made.tag, made.among)
                self._budget.settle(reserved)
                if reserved is not None:
                    finished = self._signed(task, finished)
                self._journal.finish(task, finished)
            return finished

    def _signed(self, task: Task, finished: FinishedTask) -> FinishedTask:
        """The answer, signed with how far the privacy ledger has come."""
        return replace(finished, result=self._link.sign(self._budget.with_head(task, finished.result)))

    def _finish_protocol(self, task: Task, model: Path | None) -> FinishedTask:
        """Answer a task of the masking protocol alone, or of the exchange of noise, durably."""
        with self._finishing:
            finished = self._journal.find(task.id)
            if finished is None:
                if is_exchange(task):
                    finished = self._noise.answer(task, model)
                else:
                    finished = protocol_answer(self._link, self._policy, task, self._home, self._remembered)
                self._journal.finish(task, finished)
            return finished

    def _known(self, task: Task) -> FinishedTask | None:
        with self._finishing:
            return known_answer(self._link, self._journal, self._folders, task)

    async def _hand_in(self, opened: OpenTask, finished: FinishedTask) -> None:
        """Send the update, then the result, for as long as the step can be open.

        Raises:
            HanseError: UNAVAILABLE when that time is over; what the hub answered, if it refused.
        """
        task = opened.task
        await until_let_out(self._home, self._clock)
        headers = await asyncio.to_thread(self._leave, task, finished)
        seconds = max(5.0, opened.seconds_left)
        await send(self._link, task, finished, self._folders.output(task), seconds=seconds, headers=headers)

    def _leave(self, task: Task, finished: FinishedTask) -> dict[str, str]:
        """Write down what is about to leave; gives the headers that go beside it. Blocks."""
        self._remembered.leave(task, finished.result)
        self._outbox.append(*outbox_entries(task, finished, self._folders.output(task)))
        if self._policy.limits.mib_a_day is not None:
            made = (finished.result.update, finished.result.tally, *(finished.result.extras or {}).values())
            self._moved.sent(made, self._clock.now().timestamp())
        return self._head(task)

    async def _write_down(self, *leaving: Leaving) -> None:
        await until_let_out(self._home, self._clock)
        await asyncio.to_thread(self._outbox.append, *leaving)


def _other_data(task: Task) -> HanseError:
    if is_study_step(task):
        have, want = "data that models are trained on", "genotypes: --data PREFIX, --data-kind plink"
    else:
        have, want = "genotypes", f"data that models are trained on, for a task of kind {task.kind}"
    return HanseError(ErrorCode.SCHEMA_MISMATCH, f"data: this site has {have}, expected {want}")
