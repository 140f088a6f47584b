"""Answers, made durable: what these methods return is in the journal, and may leave. One at a time; all block."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from hanse_datapod.answers.plain import plain_answer
from hanse_datapod.answers.withheld import of_the_data
from hanse_datapod.home.folders import TaskFolders, masked
from hanse_datapod.home.journal import FinishedTask, TaskJournal
from hanse_datapod.masking.answer import masked_answer
from hanse_datapod.masking.pairwise import protocol_answer
from hanse_datapod.masking.remembered import Remembered
from hanse_datapod.masking.sessions import known_answer, require_new_session
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.privacy.budget import SiteBudget
from hanse_datapod.privacy.noise import SiteNoise, is_exchange
from hanse_datapod.privacy.reservation import Reservation
from hanse_datapod.study.answers import check_answer, plain_study_answer
from hanse_datapod.study.tasks import is_study_step
from hanse_datapod.worker.port import WorkOutcome
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import Outcome, SiteCheck, Task, TaskKind
from hanse_site import SiteLink
from hanse_site.answering import result_for


class Finishing:
    """Makes a site's answers, each once: cancelled work, whose thread goes on, may have made one before."""

    def __init__(
        self, link: SiteLink, *, home: Path, folders: TaskFolders, policy: Policy, journal: TaskJournal,
        budget: SiteBudget, remembered: Remembered,
    ) -> None:  # fmt: skip
        self._link, self._home, self._folders, self._policy, self._journal = link, home, folders, policy, journal
        self._budget, self._remembered, self._noise = budget, remembered, SiteNoise(link, policy, home)
        self._lock = threading.Lock()

    def known(self, task: Task) -> FinishedTask | None:
        """The answer that the task has already."""
        with self._lock:
            return known_answer(self._link, self._journal, self._folders, task)

    def of_check(self, task: Task, said: SiteCheck) -> FinishedTask:
        """What the site says of a job."""
        with self._lock:
            result = result_for(task).model_copy(update={"payload": said.encode()})
            finished = FinishedTask(self._link.sign(result))
            self._journal.finish(task, finished)
            return finished

    def of_protocol(self, task: Task, model: Path | None) -> FinishedTask:
        """The answer to a task of the masking protocol alone, or of the exchange of noise."""
        if is_exchange(task):
            return self._once(task, lambda: self._noise.answer(task, model))
        return self._once(
            task, lambda: protocol_answer(self._link, self._policy, task, self._home, self._remembered)
        )  # fmt: skip

    def of_work(self, task: Task, outcome: WorkOutcome, reserved: Reservation | None) -> FinishedTask:
        """The answer that is made of what the worker has made, and paid."""

        def made() -> FinishedTask:
            finished = self._made(task, outcome, reserved)
            self._budget.settle(reserved)
            return finished if reserved is None else self._signed(task, finished)

        return self._once(task, made)

    def of_failure(self, task: Task, outcome: Outcome, error: HanseError) -> FinishedTask:
        """That the task is refused, or has failed, and why."""
        finished = self._signed(task, FinishedTask(result_for(task, outcome, reason=str(error), code=error.code.code)))
        # The answer is sent even when the journal's disk is full; the outbox log has a reserve for it.
        with suppress(HanseError):
            self._journal.finish(task, finished)
        return finished

    def _once(self, task: Task, make: Callable[[], FinishedTask]) -> FinishedTask:
        with self._lock:
            finished = self._journal.find(task.id)
            if finished is None:
                finished = make()
                self._journal.finish(task, finished)
            return finished

    def _made(self, task: Task, outcome: WorkOutcome, reserved: Reservation | None) -> FinishedTask:
        if is_study_step(task):
            check_answer(self._policy, task, outcome)
        elif task.kind is TaskKind.PREPARE and self._policy.is_exact(task):
            with of_the_data(task):
                self._policy.check_cells(outcome.data)
        elif task.kind is TaskKind.EVALUATE:
            with of_the_data(task):
                self._policy.check_subgroups(task, outcome.data)
        if is_study_step(task) and task.masking is None:
            return plain_study_answer(self._link, task, outcome)
        if task.masking is None or not masked(task):
            counted = reserved is not None and reserved.counts
            return plain_answer(self._link, self._policy, task, outcome, counted=counted)
        require_new_session(self._journal, task)
        made = masked_answer(
            self._link, self._policy, task, task.masking, outcome, self._folders.output(task),
            home=self._home, remembered=self._remembered, noise=self._noise,
        )  # fmt: skip
        with of_the_data(task):
            self._remembered.check_people(task, outcome.data, made.tag)
        self._remembered.claim(task, made.finished, outcome.data, made.tag, made.among)
        return made.finished

    def _signed(self, task: Task, finished: FinishedTask) -> FinishedTask:
        """The answer, signed with how far the privacy ledger has come."""
        return replace(finished, result=self._link.sign(self._budget.with_head(task, finished.result)))
