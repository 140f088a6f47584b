"""The site's privacy budget: each task with privacy terms is charged before any noise for it is drawn.

The ledger (`hanse_privacy.ledger`) is opened, and numpy loaded, by the first task that has such terms. What the worker
is told to do (clip, noise) is decided here, from the very number that was charged.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hanse_datapod.answers.plain import require_update_alone
from hanse_datapod.policy.privacy import BudgetPolicy, PrivacyPolicy
from hanse_datapod.privacy.expected import expected_charges, stands_for_all
from hanse_datapod.privacy.metrics import CoveredMetrics, covered_metrics
from hanse_datapod.privacy.preparation import is_private_preparation, preparation_noise, told_of
from hanse_datapod.privacy.shared_turns import is_shared, shared_terms
from hanse_datapod.worker.port import WorkOutcome
from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.errors import ErrorCode, HanseError, invalid, unfit
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import BudgetTold, HiddenFailure, LedgerHead, Result, Task, TaskKind
from hanse_fabric.telemetry.catalogue import PRIVACY_BUDGET, PRIVACY_SPENT
from hanse_learning.site.private_terms import terms_of_work
from hanse_privacy.accounting.events import Event
from hanse_schemas.terms import AT_DELTA

if TYPE_CHECKING:
    from hanse_privacy.ledger import Balance, Budget, Budgets, Charge, Ledger
    from hanse_privacy.turns import Turn

WHOLE_RUN = "whole run"
"""Names the one charge of a run whose noise is correlated over its rounds. It stays open to the run's end."""
WHOLE_SITE = "(site)"
"""In the metrics' label `project`: the budget over all projects."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """A task that was charged.

    Attributes:
        work: what the worker is told, as `config["privacy"]`: mechanism, clip (what it clips to), scale (standard
            deviation, or scale of Laplace kinds; 0 where it adds none), and for dp_sgd steps and the expected batch;
            `metrics`, where some leave.
        covered: the metrics that leave with noise of their own; None: none leave.
    """

    charges: tuple[Charge, ...]
    work: dict[str, Any]
    covered: CoveredMetrics | None = None

    @property
    def counts(self) -> bool:
        """Whether the number of examples has noise, too."""
        return self.covered is not None and self.covered.by_example

    def keep_covered(self, outcome: WorkOutcome) -> WorkOutcome:
        """The outcome without metrics, numbers and notes that no noise covers; noise is on those that are left."""
        if not self.work:
            return outcome
        if self.work.get("mechanism") != "dp_sgd":  # in which all that training makes is made of noisy gradients
            require_update_alone(outcome)
        kept = replace(outcome, info={}, note="")
        return replace(kept, metrics={}, counted="") if self.covered is None else self.covered.noisy(kept)

    def without_answer(self, task: Task, error: HanseError, examples: int) -> WorkOutcome:
        """In place of an evaluation that failed on the data: noise alone, for whether it failed is told otherwise.

        Args:
            examples: of the site.

        Raises:
            HanseError: the error, where it is of anything else. Means over examples that are cut never fail on them.
        """
        failed = error.code is ErrorCode.of(HiddenFailure.FAILED.value)
        if task.kind is not TaskKind.EVALUATE or not failed or self.counts:
            raise error
        return WorkOutcome(None, examples, {})


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
        covered = covered_metrics(task)
        prepares = is_private_preparation(task)
        evaluates = task.kind is TaskKind.EVALUATE and covered is not None
        if task.privacy is None or not (task.kind is TaskKind.TRAIN or prepares or evaluates):
            return None
        told: dict[str, Any] = {}
        charges: list[Charge] = []
        charge = partial(self._charge, task, task.privacy.attempt)
        if task.kind is TaskKind.TRAIN:
            noise, told = terms_of_work(
                task.privacy, task.participant, task.config, examples=examples,
                coordinates=None if model is None else partial(numbers_of, model), units=units,
                accountant=self._policy.accountant, ring=None if task.masking is None else task.masking.ring,
            )  # fmt: skip
            placement = task.privacy.privacy.placement
            note = f"{noise.mechanism}, {placement}: {noise.multiplier:.6g} per clip of {noise.clip:g}"
            if noise.unit == "unit":
                note += ", for whoever has examples, with all of them"
            parts = ("", "/rounding")
            charges += [
                charge(event, count, note, part) for part, (event, count) in zip(parts, noise.charged, strict=False)
            ]
        if prepares:
            drawn = preparation_noise(task, self._policy.accountant)
            charges.append(charge(drawn.event, 1, f"preparation, {task.privacy.privacy.placement}"))
            told = told_of(drawn, task)
        if covered is not None:
            if covered.by_example and units is not None and covered.asked.bounds:
                raise invalid(
                    "privacy.metrics",
                    ", ".join(sorted(covered.asked.bounds)),
                    "none with dp_sgd for units",
                    hint="their noise hides one example, and a unit of the project's schema may have many; "
                    "evaluate.metrics of counts hide a unit",
                )
            event = Event("pure", covered.asked.epsilon)
            charges.append(charge(event, 1, covered.in_words, "/metrics"))
            told |= covered.told
        from hanse_privacy.ledger import Budget

        turn = _turn(task, self._turns_of, self._home)
        ledger = self._open()
        self._look_back(ledger, task)
        try:
            balance = ledger.reserve(*charges, turn=turn, run=None if most is None else Budget(most, AT_DELTA))
        except HanseError as error:
            raise self._told(error, task) from None
        _report_metrics(task.project, balance)
        if self._policy.epsilon is not None:
            _report_metrics(WHOLE_SITE, ledger.site_balance())
        return Reservation(tuple(charges), told, covered)

    def _told(self, error: HanseError, task: Task) -> HanseError:
        """A refusal as it may leave: where this charge or an earlier one follows from how many examples there are, its
        figures tell that."""
        if error.code is not ErrorCode.POLICY or not self._hidden:
            return error
        by_examples = task.privacy is not None and task.privacy.privacy.mechanism == "dp_sgd"
        if not by_examples and not self._open().by_examples(task.project):
            return error
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
        charges = expected_charges(task, rounds, self._policy, examples=examples, units=units)
        if charges is None:
            return None
        from hanse_privacy.ledger import Budget

        affords = partial(self._open().affords, *charges, run=None if most is None else Budget(most, AT_DELTA))
        limited = self._policy.has_ceiling(task.project) or most is not None
        if limited and not affords(alone=True):
            return False
        if self._hides_balance(task.project) and self._policy.has_ceiling(task.project):
            # Whoever asks often enough would close in on what remains. What is too much even alone tells nothing of it.
            return None
        unsure = stands_for_all(task, examples)
        if limited and unsure and not self._no_dearer(task, charges):
            return None
        if affords():
            return True
        # What stands for charges of another kind adds up otherwise: it says no where it is too much even alone.
        return None if unsure else False

    def _no_dearer(self, task: Task, charges: Sequence[Charge]) -> bool:
        """Whether charges cost no more than what stands for them, as `expected_charges` has it."""
        if task.privacy is None or task.privacy.privacy.mechanism != "dp_sgd":
            return True
        return len(charges) == 1 and self._open().is_unspent(task.project)

    def remaining(self, project: str) -> float | None:
        """Epsilon that is left to a project, for its owner; None where there is no ceiling, or nobody may hear it."""
        return None if self._hides_balance(project) else self._open().remaining(project)

    def charged(self, task: Task) -> bool:
        """Whether the task's run was ever charged at this home."""
        return charged(self._folder) and self._open().knows(task.project, task.run, self._home)

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

    def _charge(self, task: Task, attempt: int, event: Event, count: int, note: str, part: str = "") -> Charge:
        """What a task costs this home, or a part of it by a name of its own."""
        from hanse_privacy.ledger import Charge

        if _correlated(task):
            return Charge(task.project, task.run, f"{WHOLE_RUN}{self._home}", event, count, note)
        session = task.masking.session if task.masking is not None else "plain"
        work = f"{task.step}/{attempt}/{session}/{task.id}{part}{self._home}"
        return Charge(task.project, task.run, work, event, count, note)

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


def name_of(home: Path) -> str:
    """Ends the names of a home's charges in a ledger that it shares, for a hub may name two homes' work alike."""
    return f"/{hashlib.sha256(bytes(home.resolve())).hexdigest()[:16]}"


def numbers_of(model: Path) -> int:
    """How many numbers a model's file has."""
    from hanse_fabric.tensors.file import layout_of

    return sum(entry.count for entry in layout_of(model))


def _correlated(task: Task) -> bool:
    privacy = None if task.privacy is None else task.privacy.privacy
    return privacy is not None and privacy.min_separation is not None and task.kind is TaskKind.TRAIN


def _turn(task: Task, folder: Path, home: str) -> Turn | None:
    """The site's part in a run whose noise is correlated over its rounds; None where it is not.

    Args:
        folder: of what this site's shares of such noise are made of.
        home: its name in a ledger that several share; else empty.
    """
    terms = task.privacy
    if terms is None or terms.privacy.min_separation is None or not _correlated(task):
        return None
    from hanse_fabric.canonical import canonical
    from hanse_learning.binding import work_digest
    from hanse_privacy.turns import Turn

    if terms.round != task.round:
        raise invalid("privacy.round", terms.round, f"the task's, {task.round}")
    same = terms.model_dump(mode="json", include={"privacy", "rounds", "correlation"})
    work = work_digest(task)
    if is_shared(task):
        same |= shared_terms(task, folder)
        work = hashlib.sha256(work + "\n".join(terms.training).encode()).digest()
    return Turn(
        task.project, f"{task.run}{home}", task.round, terms.rounds, terms.privacy.min_separation,
        hashlib.sha256(canonical(same)).hexdigest(), work.hex(), trains=not terms.rests(task.participant),
    )  # fmt: skip


def _report_metrics(scope: str, balance: Balance) -> None:
    PRIVACY_SPENT.set(balance.spent, project=scope)
    if balance.epsilon is not None:
        PRIVACY_BUDGET.set(balance.epsilon, project=scope)


def budgets(policy: PrivacyPolicy) -> Budgets:
    """The policy's budgets, as the ledger takes them."""
    from hanse_privacy.ledger import Budget, Budgets

    def made(budget: BudgetPolicy | None) -> Budget | None:
        return None if budget is None else Budget(budget.epsilon, budget.delta)

    return Budgets(
        site=None if policy.epsilon is None else Budget(policy.epsilon, policy.delta),
        project=made(policy.project),
        projects={name: Budget(budget.epsilon, budget.delta) for name, budget in policy.projects.items()},
    )


def spent_of(home: Path, policy: PrivacyPolicy, project: str, *, hidden: bool) -> BudgetTold | None:
    """What is spent of a project's budget, and its ceiling: that of the whole site where it has none of its own.

    Args:
        hidden: how many examples the site has is not told.

    Returns:
        None where it is not told and could be reckoned from what is spent.

    Raises:
        HanseError: as `balances`.
    """
    own = policy.projects.get(project) or policy.project
    delta = policy.delta if own is None else own.delta
    found = next((row for row in balances(home, policy) if row.scope == project), None)
    if hidden and found is not None and found.by_examples:
        return None
    return BudgetTold(
        spent=0.0 if found is None else found.spent, delta=delta if found is None else found.delta,
        allowed=policy.epsilon if own is None else own.epsilon,
    )  # fmt: skip


def restore_ledger(home: Path, policy: PrivacyPolicy, reason: str, lost: tuple[str, float] | None = None) -> None:
    """Go on with a ledger that lacks entries, by the administrator's word.

    Args:
        lost: the project that they were charged for, and the epsilon that they had cost; None: nobody knows.
    """
    from hanse_privacy.ledger import Charge, Ledger

    charge = None
    if lost is not None:
        project, spent = lost
        work = f"lost/{SYSTEM_CLOCK.now().isoformat()}"
        charge = Charge(project, "0" * 12, work, Event("pure", spent), note=f"entries that are lost: {reason}")
    ledger = Ledger(policy.ledger or home, budgets(policy), accountant=policy.accountant)
    try:
        ledger.restored(reason, spent=charge)
    finally:
        ledger.close()


def charged(folder: Path) -> bool:
    """Whether the folder has a ledger, or what is left of one."""
    from hanse_privacy.ledger import NAME

    return any((folder / f"{NAME}.{part}").exists() for part in ("jsonl", "head"))


def balances(home: Path, policy: PrivacyPolicy) -> list[Balance]:
    """What is spent and allowed, for people; beginning no ledger where nothing was charged yet.

    Raises:
        HanseError: NOT_FOUND where there is no such home; TAMPERED.
    """
    from hanse_privacy.ledger import Balance, Ledger

    folder = policy.ledger or home
    if not charged(folder):
        if not home.is_dir():
            raise HanseError(ErrorCode.NOT_FOUND, f"{home}: no such folder", hint="is this a datapod's --home?")
        named = sorted(policy.projects.items())
        return [
            Balance("site", 0.0, policy.delta, policy.epsilon),
            *(Balance(name, 0.0, budget.delta, budget.epsilon) for name, budget in named),
        ]
    ledger = Ledger(folder, budgets(policy), accountant=policy.accountant)
    try:
        return ledger.balances()
    finally:
        ledger.close()
