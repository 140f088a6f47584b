"""Whether a task may be done at this site, and what is written down before it is begun."""

from __future__ import annotations

import hashlib
from pathlib import Path

from hanse_datapod.agent.terms import TermsHere
from hanse_datapod.answers.delivery import asked_link
from hanse_datapod.home.approvals import with_approved
from hanse_datapod.home.folders import TaskFolders
from hanse_datapod.home.journal import TaskJournal
from hanse_datapod.home.line_day import LineDay
from hanse_datapod.home.outbox import Outbox
from hanse_datapod.home.runs import Counted, Runs
from hanse_datapod.masking.binding import check_binding
from hanse_datapod.masking.pairwise import is_pairwise
from hanse_datapod.masking.plan import check_plan, check_shares, updates_wanted
from hanse_datapod.masking.remembered import Remembered
from hanse_datapod.masking.sessions import require_new_session
from hanse_datapod.policy.questions import Questions
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.privacy.noise import is_exchange
from hanse_datapod.privacy.shared_turns import check_members
from hanse_datapod.study.tasks import is_study_step
from hanse_datapod.worker.port import WORKER_KINDS, Worker
from hanse_fabric.canonical import canonical
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ObjectRef, Task, TaskKind
from hanse_privacy.witness import found_beside, is_own
from hanse_site import OpenTask, SiteLink

_WHEN = frozenset({"issued_at", "deadline", "ledger", "deltas"})
"""Fields of a task that are of the sending, not of what is asked."""


class Admission:
    """Of one home. Its methods block, and any thread may call them."""

    def __init__(
        self, link: SiteLink, worker: Worker, *, home: Path, folders: TaskFolders, policy: Policy,
        journal: TaskJournal, outbox: Outbox, remembered: Remembered, line: LineDay, clock: Clock,
        terms: TermsHere,
    ) -> None:  # fmt: skip
        self._link, self._worker, self._clock = link, worker, clock
        self._home, self._folders, self._policy = home, folders, policy
        self._journal, self._outbox = journal, outbox
        self._remembered, self._line = remembered, line
        self._terms = terms
        self._runs, self._questions = Runs(home), Questions()

    def close(self) -> None:
        """Give the file back; the next change opens it again."""
        self._runs.close()

    def allowed(self) -> Policy:
        """The policy, with the code that was approved meanwhile."""
        return with_approved(self._policy, self._home)

    def admit(self, opened: OpenTask) -> None:
        """Refuse what the site's policy, its log or its kind of data do not allow."""
        task = opened.task
        self.look_back(opened)
        self._terms.check(task)
        self.allowed().check(task)
        self._policy.check_asking(task, self._link.identity.schema)
        self._questions.check(task)
        if task.kind in WORKER_KINDS - {TaskKind.INITIALIZE}:
            asking, cautious = self._policy.asking, self._policy.masking.required
            self.count(task, asking.most_runs(cautious=cautious), "runs")
            if task.kind is TaskKind.EVALUATE or self._policy.tells_training(task):
                self.count(task, asking.most_evaluations(cautious=cautious), "evaluations")
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

    def begin(self, task: Task) -> None:
        """Write down that a worker's task begins, before anything of it is fetched; what is still refused, is here."""
        if task.kind in (TaskKind.TRAIN, TaskKind.EVALUATE):
            self._worker.require(task.config)
        require_new_session(self._journal, task)
        if (mib := self._policy.limits.mib_a_day) is not None:
            self._line.begin(self._to_fetch(task), self._clock.now().timestamp(), mib)
        self._remembered.check(task)
        self._terms.begin(task)
        self._folders.prepare(task)
        self._journal.begin(task)
        fetched = [ref for ref in self._to_fetch(task) if ref.key]
        if fetched:
            self._outbox.append(*[asked_link(task)] * len(fetched))

    def _to_fetch(self, task: Task) -> tuple[ObjectRef, ...]:
        """What the task needs of the hub, of its model and extras."""
        return (*self._link.files.to_fetch(task), *(task.extras or {}).values())

    def look_back(self, opened: OpenTask) -> None:
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

    def count(self, task: Task, most: int | None, of: Counted) -> None:
        """Count what is asked among what was asked that day.

        Args:
            most: so many may be; None: any number, and nothing is counted.

        Raises:
            HanseError: POLICY.
        """
        if most is not None:
            asked = task.run if of == "runs" else question_of(task)
            self._runs.begin(asked, self._clock.now().timestamp(), most, of=of)


def question_of(task: Task) -> str:
    """What is asked, by which it is counted: the same task that comes again is the same question. A name alone, which
    the hub chooses, would let it ask for something else under one that was counted.

    Raises:
        HanseError: INVALID_INPUT for settings that have no digest.
    """
    asked = {name: getattr(task, name) for name in Task.model_fields if name not in _WHEN}
    try:
        return hashlib.sha256(b"hanse question 1\n" + canonical(asked)).hexdigest()
    except (TypeError, ValueError) as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"task.config: it has no digest: {error}") from None


def _other_data(task: Task) -> HanseError:
    if is_study_step(task):
        have, want = "data that models are trained on", "genotypes: --data PREFIX, --data-kind plink"
    else:
        have, want = "genotypes", f"data that models are trained on, for a task of kind {task.kind}"
    return HanseError(ErrorCode.SCHEMA_MISMATCH, f"data: this site has {have}, expected {want}")
