"""What the site says of a job before it is run: whether its data fit, what its policy would refuse, whether its privacy
budget suffices.

A hub may ask as often as `asking.questions` lets it, of any job, and nothing is charged. So nothing here but one thing
depends on the job and the data together: the data were held against the project's schema once, before anybody asked;
the policy knows no data; and a charge that depends on how many examples there are is not told by a site that does not
tell these. The one thing: where a job has `dp_sgd`, and keyed hashes set no example, or all, aside for tests, the data
do not fit it. That is the same for each such job, but may tell whether one person is there (docs/privacy.md).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from hanse_datapod.agent.data_check import DataCheck, Looked
from hanse_datapod.answers.withheld import hides
from hanse_datapod.masking.plan import check_shares
from hanse_datapod.policy.refusal import ForbiddenError
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.privacy.budget import SiteBudget
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages import FindingCode, SiteCheck, SiteFinding, Task, TaskKind
from hanse_fabric.messages.privacy import MOST_ROUNDS
from hanse_schemas.schema import DataSchema

_ASKED = frozenset({TaskKind.PREPARE, TaskKind.TRAIN, TaskKind.EVALUATE, TaskKind.STUDY})
_OF_REMARKS = frozenset({"moments", "category_counts"})
"""Protocols that would tell what is odd about the data: which columns have cells, and which values and classes rows."""
_MOST = 16
_TEXT = 500


class Preflight:
    """Answers tasks of kind CHECK.

    Args:
        allowed: the policy, with the code that was approved meanwhile.
        agreed: raises where the project's terms, as the site has agreed to them, do not let a task.
        most: epsilon that the task's run may cost by these terms; raises as `agreed`.
        kinds: of tasks that the site's worker does with its data.
    """

    def __init__(
        self, policy: Policy, allowed: Callable[[], Policy], schema: DataSchema, kinds: Collection[TaskKind],
        data: DataCheck, budget: SiteBudget, agreed: Callable[[Task], None], most: Callable[[Task], float | None],
    ) -> None:  # fmt: skip
        self._allowed, self._agreed, self._most = allowed, agreed, most
        self._policy, self._schema, self._kinds, self._data, self._budget = policy, schema, kinds, data, budget

    def answer(self, task: Task, there: Looked | HanseError) -> SiteCheck:
        """What the site says, once the data were looked at. Blocks.

        Args:
            there: what the job would train on, or why there is nothing.

        Raises:
            HanseError: INVALID_INPUT for a question that is none; TAMPERED, NO_SPACE of the ledger.
        """
        works = _works(task)
        cautious = self._policy.masking.required or self._policy.privacy.required or hides(task)
        found = [self._of_data(works, there, cautious=cautious), *self._of_policy(works, cautious=cautious)]
        if task.privacy is not None and TaskKind.TRAIN in {work.kind for work in works}:
            found.append(self._of_budget(task, there))
        return SiteCheck(findings=tuple(found))

    def _of_data(self, works: list[Task], there: Looked | HanseError, *, cautious: bool) -> SiteFinding:
        unfit = there if isinstance(there, HanseError) else None
        if unfit is None and any(work.kind not in self._kinds for work in works):
            unfit = HanseError(ErrorCode.SCHEMA_MISMATCH, "data: this site's are of another kind than the job wants")
        if unfit is None and any(work.kind is not TaskKind.STUDY for work in works):
            try:
                examples = there.examples if isinstance(there, Looked) else 0
                self._policy.check_examples(examples, tell=not cautious)
            except HanseError as error:
                unfit = error
        if unfit is None:
            told = not cautious and set(self._policy.protocols) >= _OF_REMARKS
            return SiteFinding(code=FindingCode.FITS, text="; ".join(self._data.remarks)[:_TEXT] if told else "")
        return SiteFinding(code=FindingCode.UNFIT, text="" if cautious else str(unfit)[:_TEXT])

    def _of_policy(self, works: list[Task], *, cautious: bool) -> list[SiteFinding]:
        found: dict[tuple[str, str], SiteFinding] = {}
        allowed, masked = self._allowed(), self._policy.masking.required
        for work in works:
            try:
                self._agreed(work)
                allowed.check(work)
                self._policy.check_asking(work, self._schema)
                check_shares(self._policy, work)
                if self._policy.asking.most_evaluations(cautious=masked) is not None:
                    told = sum(self._told_models(each) for each in works)
                    self._policy.asking.check_evaluations(told, cautious=masked)
            except HanseError as error:
                rule = error.rule if isinstance(error, ForbiddenError) else ""
                text = "" if cautious else str(error)[:_TEXT]
                found[rule, text] = SiteFinding(code=FindingCode.REFUSED, rule=rule, text=text)
        return list(found.values())[:_MOST] or [SiteFinding(code=FindingCode.ALLOWED)]

    def _told_models(self, work: Task) -> int:
        """Of how many models this part of the run would tell metrics."""
        if work.kind is TaskKind.EVALUATE:
            return _evaluations(work)
        return _rounds(work) if self._policy.tells_training(work) else 0

    def _of_budget(self, task: Task, there: Looked | HanseError) -> SiteFinding:
        looked = Looked(0) if isinstance(there, HanseError) else there
        known = tells_examples(self._policy) and looked is there
        examples = looked.examples if known else None
        try:
            most = self._most(task)
        except HanseError:
            most = None  # nobody here has agreed to the terms, which was found to refuse the job
        enough = self._budget.affords(task, _rounds(task), examples=examples, units=looked.units, most=most)
        remains = self._budget.remaining(task.project) if self._policy.privacy.open_balance else None
        code = {True: FindingCode.ENOUGH, False: FindingCode.SHORT, None: FindingCode.UNTOLD}[enough]
        return SiteFinding(code=code, remains=remains)


def tells_examples(policy: Policy) -> bool:
    """Whether what is answered may depend on how many examples the site has."""
    return policy.privacy.tells("examples") and not policy.masking.required


def _works(task: Task) -> list[Task]:
    """The kinds of tasks that the run would have.

    Raises:
        HanseError: INVALID_INPUT.
    """
    kinds = task.config.get("kinds")
    known = {kind.value: kind for kind in _ASKED}
    if not isinstance(kinds, list) or not kinds or not set(map(str, kinds)) <= known.keys():
        raise invalid("task.config.kinds", kinds, f"some of {', '.join(sorted(known))}")
    works = [task.model_copy(update={"kind": known[str(kind)]}) for kind in kinds]
    return [
        work.model_copy(update={"config": work.config | {"step": "samples"}}) if work.kind is TaskKind.STUDY else work
        for work in works
    ]


def _evaluations(task: Task) -> int:
    """How often the run would have its model evaluated."""
    every = (task.config.get("evaluate") or {}).get("every", 1)
    if not isinstance(every, int) or every < 1:
        raise invalid("task.config.evaluate.every", every, "a whole number from 1, of rounds")
    return -(-_rounds(task) // every)


def _rounds(task: Task) -> int:
    rounds = task.config.get("rounds")
    if not isinstance(rounds, int) or not 1 <= rounds <= MOST_ROUNDS:
        raise invalid("task.config.rounds", rounds, f"a whole number from 1 to {MOST_ROUNDS}")
    return rounds
