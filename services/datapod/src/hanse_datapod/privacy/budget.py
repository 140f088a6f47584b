"""The site's privacy budget: each task with privacy terms is charged before any noise for it is drawn.

The ledger (`hanse_privacy.ledger`) is opened, and numpy loaded, by the first task that has such terms. What a task
costs is said by `privacy.charges`, what its whole run will cost by `privacy.expected`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hanse_datapod.policy.privacy import PrivacyPolicy
from hanse_datapod.privacy.books import budgets
from hanse_datapod.privacy.charges import WHOLE_RUN, charges_of, name_of
from hanse_datapod.privacy.expected import expected_charges, plan_of, stands_for_all
from hanse_datapod.privacy.reservation import Reservation
from hanse_datapod.privacy.turn_of import turn_of
from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.errors import ErrorCode, HanseError, unfit
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import LedgerHead, PrivacyTerms, Result, Task, TaskKind
from hanse_fabric.telemetry.catalogue import PRIVACY_BUDGET, PRIVACY_SPENT
from hanse_schemas.terms import AT_DELTA

if TYPE_CHECKING:
    from hanse_privacy.ledger import Balance, Charge, Ledger

WHOLE_SITE = "(site)"
"""In the metrics' label `project`: the budget over all projects."""


class SiteBudget:
    """The budget of one home. Its methods block, and any thread may call them.

    Args:
        key: the site's, by which it knows the ledger's heads that it signed; None: none are signed.
        answered: the head in the newest charged answer that the site itself remembers.
        hidden: nothing that leaves may depend on how many examples the site has. What is spent does, from the first
            charge on that does.
    """

    def __init__(
        self, home: Path, policy: PrivacyPolicy, clock: Clock = SYSTEM_CLOCK, *, key: SigningKey | None = None,
        answered: Callable[[], LedgerHead | None] = lambda: None, hidden: bool = False,
    ) -> None:  # fmt: skip
        self._hidden = hidden or not policy.tells("examples")
        self._folder, self._turns_of = policy.ledger or home, home
        self._home = "" if policy.ledger is None else name_of(home)
        self._policy, self._key, self._clock, self._answered = policy, key, clock, answered
        self._opening = threading.Lock()
        self._ledger: Ledger | None = None

    def reserve(
        self, task: Task, *, examples: int, model: Path | None, units: int | None = None, most: float | None = None
    ) -> Reservation | None:
        """Charge the ledger for a task, before work on it begins. None: it has no privacy terms.

        Args:
            examples: of the site's training data.
            model: the received model's file, whose size staircase noise depends on.
            units: who have the training data, where the project's schema says whose each example is.
            most: epsilon that the task's run may cost this home at delta `AT_DELTA`, by the project's terms.

        Raises:
            HanseError: POLICY where the budget would be exceeded, with what remains; INVALID_INPUT for terms that this
                site cannot keep; TAMPERED for a damaged ledger; NO_SPACE.
        """
        if (terms := task.privacy) is None:
            return None
        reservation = charges_of(
            task, terms, self._home, self._policy.accountant, examples=examples, model=model, units=units
        )
        if reservation is None:
            return None
        from hanse_privacy.ledger import Budget

        plan = plan_of(task, terms, self._policy, examples=examples, model=model, units=units)
        turn = turn_of(task, self._turns_of, self._home)
        ledger = self._open()
        self._look_back(ledger, task)
        try:
            balance = ledger.reserve(
                *reservation.charges, turn=turn, run=None if most is None else Budget(most, AT_DELTA), plan=plan
            )
        except HanseError as error:
            raise self._told(error, task.project, terms) from None
        _report_metrics(task.project, balance)
        if self._policy.epsilon is not None:
            _report_metrics(WHOLE_SITE, ledger.site_balance())
        return reservation

    def _told(self, error: HanseError, project: str, terms: PrivacyTerms) -> HanseError:
        """A refusal as it may leave: where this charge or an earlier one follows from how many examples there are, its
        figures tell that; so does what the same work was charged as before, whose noise is made for them."""
        if error.code not in (ErrorCode.POLICY, ErrorCode.CONFLICT) or not self._hidden:
            return error
        if terms.privacy.mechanism != "dp_sgd" and not self._open().by_examples(project):
            return error
        if error.code is ErrorCode.CONFLICT:
            return unfit(
                "the site has charged the same work otherwise", error.message, code=error.code, hint=error.hint
            )
        return unfit("the site's privacy budget forbids it", error.message, code=ErrorCode.POLICY, hint=error.hint)

    def affords(
        self, task: Task, rounds: int, *, examples: int | None, units: int | None = None, most: float | None = None
    ) -> bool | None:
        """Whether budget and terms have room for all that a run's tasks of these would be charged. Nothing is charged.

        Args:
            task: any of the run's.
            rounds: in which this site takes part.
            examples: of the site's training data; None: what is answered may not depend on them.
            units: who have them.
            most: as in `reserve`.

        Returns:
            None where that depends on examples that are not given or that nobody may hear of, or on the model's size.

        Raises:
            HanseError: INVALID_INPUT for terms that no site can keep; TAMPERED.
        """
        if (terms := task.privacy) is None:
            return True
        charges = expected_charges(task, terms, rounds, self._policy, examples=examples, units=units)
        if charges is None:
            return None
        from hanse_privacy.ledger import Budget

        affords = partial(self._open().affords, run=None if most is None else Budget(most, AT_DELTA))
        limited, unsure = self._policy.has_ceiling(task.project) or most is not None, stands_for_all(terms, examples)
        # What stands for charges of another kind adds up otherwise: it says no where one is too much even alone.
        alone = [[charge] for charge in charges] if unsure else [charges]
        if limited and not all(affords(*each, alone=True) for each in alone):
            return False
        if self._hides_balance(task.project) and self._policy.has_ceiling(task.project):
            # Whoever asks often enough would close in on what remains. What is too much even alone tells nothing of it.
            return None
        if limited and unsure and not self._no_dearer(task.project, terms, charges):
            return None
        if affords(*charges):
            return True
        return None if unsure else False

    def _no_dearer(self, project: str, terms: PrivacyTerms, charges: Sequence[Charge]) -> bool:
        """Whether charges cost no more than what stands for them, as `expected_charges` has it."""
        if terms.privacy.mechanism != "dp_sgd":
            return True
        return len(charges) == 1 and self._open().is_unspent(project)

    def remaining(self, project: str) -> float | None:
        """Epsilon that is left to a project, for its owner; None where there is no ceiling, or nobody may hear it."""
        return None if self._hides_balance(project) else self._open().remaining(project)

    def _hides_balance(self, project: str) -> bool:
        return self._hidden and self._open().by_examples(project)

    def settle(self, reserved: Reservation | None) -> None:
        """Note that the answer is about to be made durable. Doing the task once more is charged again."""
        for charge in () if reserved is None else reserved.charges:
            if not charge.work.startswith(WHOLE_RUN):
                self._open().settle(charge)

    def with_head(self, task: Task, result: Result) -> Result:
        """The result of a task, with how far the ledger has come where the task was charged."""
        charged = task.privacy is not None and task.kind in (TaskKind.TRAIN, TaskKind.EVALUATE, TaskKind.PREPARE)
        if not charged or self._ledger is None or self._key is None:
            return result
        from hanse_privacy.witness import signed_head

        entries, digest = self._ledger.head()
        if entries == 0:
            return result  # it was refused before anything was ever charged
        head = signed_head(entries, digest, project=task.project, participant=task.participant, key=self._key)
        return result.model_copy(update={"ledger": head})

    def _look_back(self, ledger: Ledger, task: Task) -> None:
        """Hold the ledger against its newest head that this site remembers, whatever the hub says, and that the hub has
        seen, if that is in this site's own signature."""
        from hanse_privacy.witness import is_own

        if (remembered := self._answered()) is not None:
            ledger.require(remembered)
        if task.ledger is None or self._key is None:
            return
        if is_own(task.ledger, project=task.project, participant=task.participant, key=self._key.verify_key):
            ledger.require(task.ledger)

    def close(self) -> None:
        with self._opening:
            ledger, self._ledger = self._ledger, None
        if ledger is not None:
            ledger.close()

    def _open(self) -> Ledger:
        from hanse_privacy.ledger import Ledger

        with self._opening:
            if self._ledger is None:
                self._ledger = Ledger(
                    self._folder, budgets(self._policy), accountant=self._policy.accountant, clock=self._clock
                )
            return self._ledger


def _report_metrics(scope: str, balance: Balance) -> None:
    PRIVACY_SPENT.set(balance.spent, project=scope)
    if balance.epsilon is not None:
        PRIVACY_BUDGET.set(balance.epsilon, project=scope)
