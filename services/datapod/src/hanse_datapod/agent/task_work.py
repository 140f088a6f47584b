"""One task, from the bus to its answer: check, fetch, work, write down, hand in.

The durable steps of a task, in this order: the answer with the update's bytes goes into the journal (`finishing`); what
is about to leave goes into the outbox log, the update is sent, the signed result is sent (`handing_in`). A datapod that
is killed finds the task still open at its next start. If the answer is in the journal, it sends those very bytes; else
it does the task again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from hanse_datapod.agent.admission import Admission
from hanse_datapod.agent.data_check import DataCheck, Looked
from hanse_datapod.agent.deltas import applied
from hanse_datapod.agent.finishing import Finishing
from hanse_datapod.agent.handing_in import HandingIn
from hanse_datapod.agent.preflight import Preflight, tells_examples
from hanse_datapod.agent.sums_under_way import open_sums
from hanse_datapod.agent.task_config import check_config
from hanse_datapod.agent.terms import TermsHere
from hanse_datapod.agent.watched_work import watch_over
from hanse_datapod.answers.delivery import asked_link
from hanse_datapod.answers.withheld import of_the_data, of_the_system, unforeseen
from hanse_datapod.data.settings import Split
from hanse_datapod.home.folders import TaskFolders, masked
from hanse_datapod.home.journal import FinishedTask, TaskJournal
from hanse_datapod.home.line_day import LineDay
from hanse_datapod.home.now import Now
from hanse_datapod.home.outbox import Outbox
from hanse_datapod.home.splits import Splits
from hanse_datapod.masking.model_file import check_model_file
from hanse_datapod.masking.remembered import Remembered
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.privacy.budget import SiteBudget
from hanse_datapod.privacy.reservation import Reservation
from hanse_datapod.privacy.shared_turns import SharedTurns, is_shared
from hanse_datapod.study.tasks import is_study_step
from hanse_datapod.worker.port import WORKER_KINDS, Worker, WorkOutcome, WorkRequest
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Outcome, Task, TaskKind
from hanse_fabric.telemetry.catalogue import TASK_SECONDS, TASKS
from hanse_fabric.telemetry.traces import extract, span
from hanse_schemas.http.joining import ALLOWED_SKEW_S
from hanse_site import OpenTask, SiteLink

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


@dataclass(frozen=True, slots=True)
class _Entered:
    """How far one has come with a task whose answer is not known.

    Attributes:
        refusal: why it is not even begun.
        failure: why it could not be begun.
        begun: whether it is written down that it begins.
    """

    refusal: Exception | None = None
    failure: Exception | None = None
    begun: bool = False


@dataclass(frozen=True, slots=True)
class _Ready:
    """An answer that is written down.

    Attributes:
        headers: that go beside it, where it is in the log of what left.
    """

    finished: FinishedTask
    headers: dict[str, str] | None = None


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
        self._home, self._folders, self._policy = home, folders, policy
        self._data, self._now = data, now
        key = link.identity.signing_key
        self._budget = SiteBudget(
            home, policy.privacy, self._clock, key=key, answered=lambda: journal.charged,
            hidden=not tells_examples(policy),
        )  # fmt: skip
        self._splits = Splits(home)
        self._turns, self._line, self._terms = SharedTurns(home), LineDay(home), terms
        self._remembered = Remembered(home, policy, self._clock, lambda: data.state)
        self._admission = Admission(
            link, worker, home=home, folders=folders, policy=policy, journal=journal, outbox=outbox,
            remembered=self._remembered, line=self._line, clock=self._clock, terms=terms,
        )  # fmt: skip
        self._preflight = Preflight(
            policy, self._admission.allowed, link.identity.schema, worker.kinds, data, self._budget, terms.check,
            terms.epsilon,
        )  # fmt: skip
        self._finishing = Finishing(
            link, home=home, folders=folders, policy=policy, journal=journal, budget=self._budget,
            remembered=self._remembered,
        )  # fmt: skip
        self._handing_in = HandingIn(
            link, home=home, folders=folders, policy=policy, outbox=outbox, line=self._line,
            remembered=self._remembered,
        )  # fmt: skip

    def close(self) -> None:
        """Give back all files that stay open between tasks; the next change opens its own again."""
        for each in (self._budget, self._splits, self._line, self._remembered, self._admission, self._terms):
            each.close()

    async def do(self, opened: OpenTask) -> None:
        """Do a task and hand its answer in. Cancelling is safe at any moment."""
        task = opened.task
        if self._clock.now() > task.deadline + timedelta(seconds=ALLOWED_SKEW_S):
            _log.info("its deadline is long over", extra={"run": task.run, "step": task.step})
            return
        with span("datapod.task", parent=extract(opened.headers), run=task.run, step=task.step):
            entered = await asyncio.to_thread(self._enter, opened)
            ready = await self._answer(opened, entered) if isinstance(entered, _Entered) else _Ready(entered)
            if ready is None:
                return
            try:
                await self._handing_in.hand_in(opened, ready.finished, ready.headers)
            except HanseError as error:
                _log.warning(
                    "the answer could not be handed in",
                    extra={"run": task.run, "step": task.step, "code": error.code.code, "reason": error.message},
                )
                return
            outcome = ready.finished.result.outcome.value
            _log.info("answered", extra={"run": task.run, "step": task.step, "outcome": outcome})
            TASKS.add(outcome=outcome)
            TASK_SECONDS.observe(self._clock.monotonic() - opened.received, kind=task.kind.value)

    def _enter(self, opened: OpenTask) -> FinishedTask | _Entered:
        """The answer, where it is known; else how far one has come with the task. Blocks."""
        known, task = self._finishing.known(opened.task), opened.task
        if known is not None:
            return known
        try:
            check_config(task)
            if task.kind is not TaskKind.CHECK:
                self._admission.admit(opened)
        except Exception as reason:
            return _Entered(refusal=reason)
        if task.kind not in WORKER_KINDS or not self._data.fit:
            return _Entered()
        try:
            self._admission.begin(task)
        except Exception as reason:
            return _Entered(failure=reason)
        return _Entered(begun=True)

    async def _answer(self, opened: OpenTask, entered: _Entered) -> _Ready | None:
        """Do the work and write the answer down; a refusal or failure is an answer too. None: nobody waits for it."""
        task = opened.task
        try:
            if entered.refusal is not None:
                raise entered.refusal
            return await self._work(opened, entered)
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
        faulty = reason.code is ErrorCode.INVALID_INPUT and (is_study_step(task) or reason is entered.refusal)
        refused = reason.code in _REFUSALS or reason is self._data.unfit or faulty
        _log.warning(
            "refused" if refused else "failed",
            extra={"run": task.run, "step": task.step, "code": reason.code.code, "reason": reason.whole},
        )
        if reason.code is ErrorCode.CANCELLED:
            return None
        outcome = Outcome.REFUSED if refused else Outcome.FAILED
        return _Ready(await asyncio.to_thread(self._finishing.of_failure, task, outcome, reason))

    async def _work(self, opened: OpenTask, entered: _Entered) -> _Ready:
        task = opened.task
        if task.kind is TaskKind.CHECK:
            return _Ready(await asyncio.to_thread(self._check, opened, await self._asked(task)))
        split = await asyncio.to_thread(self._splits.of, task)
        with of_the_data(task):
            there = await self._data.look(split)
        if task.kind not in WORKER_KINDS:
            given = await self._fetch(opened) if task.model else None
            return _Ready(await asyncio.to_thread(self._finishing.of_protocol, task, given))
        if entered.failure is not None:
            raise entered.failure
        self._now.begin(task)
        if not entered.begun:
            await asyncio.to_thread(self._admission.begin, task)
        model = await self._fetch(opened)
        if masked(task):
            await asyncio.to_thread(check_model_file, task, model)
        extras = await self._link.files.fetch_extras(task, seconds=max(1.0, opened.seconds_left))
        # Charged before any noise is drawn; the charge stays even if the work fails.
        reserved = None
        if task.privacy is not None:
            reserved = await asyncio.to_thread(
                lambda: self._budget.reserve(
                    task, examples=there.examples, model=model, units=there.units, most=self._terms.epsilon(task)
                )
            )  # fmt: skip
        try:
            parted = self._data.parted(split)
            outcome = await self._outcome(opened, reserved, there.examples, model, extras, parted)
            return await asyncio.to_thread(self._ready, task, outcome, reserved)
        except Exception as error:
            # That it failed leaves, and may be of the data: it is paid, and the same task again is paid again.
            if not (isinstance(error, HanseError) and error.code is ErrorCode.CANCELLED):
                await asyncio.to_thread(self._budget.settle, reserved)
            raise

    async def _fetch(self, opened: OpenTask) -> Path | None:
        """The task's model: made of an older one that is here, where the task says how, or fetched."""
        task = opened.task

        async def whole() -> None:
            await self._handing_in.write_down(asked_link(task))
            if self._policy.limits.mib_a_day is not None:
                await asyncio.to_thread(self._line.sent, (task.model,), self._clock.now().timestamp())

        return await self._link.files.fetch(
            task, seconds=max(1.0, opened.seconds_left), apply=applied if task.deltas else None, whole=whole
        )  # fmt: skip

    async def _outcome(
        self, opened: OpenTask, reserved: Reservation | None, examples: int, model: Path | None,
        extras: Mapping[str, Path], split: Split,
    ) -> WorkOutcome:  # fmt: skip
        """What the worker makes of a task that is charged."""
        task, shared = opened.task, is_shared(opened.task)
        if shared and (known := await asyncio.to_thread(self._turns.known, task, model, self._folders)) is not None:
            return known
        memory = self._policy.limits.memory_mib
        sums = open_sums(
            self._link,
            task,
            self._handing_in.write_down,
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
                split=split,
            )
            try:
                with of_the_data(task):
                    outcome = await watch_over(
                        self._link, self._worker, request, task, self._handing_in.write_down, self._policy.privacy,
                        self._now,
                    )  # fmt: skip
                    if outcome.update is not None or outcome.extras:
                        outcome = await asyncio.to_thread(self._folders.take, task, outcome)
            except HanseError as error:
                if reserved is None:
                    raise
                outcome = reserved.without_answer(task, error, examples)
        kept = outcome if reserved is None else reserved.keep_covered(outcome)
        return await asyncio.to_thread(self._turns.keep, task, kept) if shared else kept

    async def _asked(self, task: Task) -> Looked | HanseError:
        """How much there is to train on for a job that is asked about, or why there is nothing."""
        try:
            return await self._data.look(await asyncio.to_thread(self._splits.of, task))
        except HanseError as error:
            return error

    def _check(self, opened: OpenTask, there: Looked | HanseError) -> FinishedTask:
        """Say what the site would do of a job, and write the answer down. Blocks."""
        task = opened.task
        self._admission.look_back(opened)
        most = self._policy.asking.most_questions(cautious=self._policy.masking.required)
        self._admission.count(task, most, "questions")
        return self._finishing.of_check(task, self._preflight.answer(task, there))

    def _ready(self, task: Task, outcome: WorkOutcome, reserved: Reservation | None) -> _Ready:
        """The answer, written down; and in the log of what left, too, unless a pause holds it back. Blocks."""
        finished = self._finishing.of_work(task, outcome, reserved)
        return _Ready(finished, self._handing_in.begin(task, finished))
