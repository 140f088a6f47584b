"""The site's privacy budget: each training task with privacy terms is charged before any noise for it is drawn.

The ledger (`hanse_privacy.ledger`) is opened, and numpy loaded, by the first task that has such terms. What the worker
is told to do (clip, noise) is decided here, from the very number that was charged.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hanse_datapod.answers.plain import require_update_alone
from hanse_datapod.policy.privacy import BudgetPolicy, PrivacyPolicy
from hanse_datapod.privacy.terms import terms_of_work
from hanse_datapod.worker.port import WorkOutcome
from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import Result, Task, TaskKind
from hanse_fabric.telemetry.catalogue import PRIVACY_BUDGET, PRIVACY_SPENT

if TYPE_CHECKING:
    from hanse_privacy.accounting.terms import RoundNoise
    from hanse_privacy.ledger import Balance, Budget, Budgets, Charge, Ledger

WHOLE_SITE = "(site)"
"""In the metrics' label `project`: the budget over all projects."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """A task that was charged.

    Attributes:
        work: what the worker is told, as `config["privacy"]`: mechanism, clip (what it clips to), scale (standard
            deviation, or scale of Laplace kinds; 0 where it adds none), and for dp_sgd steps and the expected batch.
        noise: of this round, for those who add it elsewhere (placement distributed).
    """

    charge: Charge
    noise: RoundNoise
    work: dict[str, Any]

    def keep_covered(self, outcome: WorkOutcome) -> WorkOutcome:
        """The outcome of private training, without metrics, numbers and notes that the noise does not cover."""
        if not self.work:
            return outcome
        require_update_alone(outcome)
        return replace(outcome, metrics={}, info={}, note="")


class SiteBudget:
    """The budget of one home. Its methods block, and any thread may call them.

    Args:
        key: the site's, by which it knows the ledger's heads that it signed; None: none are signed.
    """

    def __init__(
        self, home: Path, policy: PrivacyPolicy, clock: Clock = SYSTEM_CLOCK, *, key: SigningKey | None = None
    ) -> None:
        self._folder = policy.ledger or home
        self._policy, self._key, self._clock = policy, key, clock
        self._opening = threading.Lock()
        self._ledger: Ledger | None = None

    def reserve(self, task: Task, *, examples: int, model: Path | None) -> Reservation | None:
        """Charge the ledger for a task, before work on it begins. None: it has no privacy terms.

        Args:
            examples: of the site's training data.
            model: the received model's file, whose size staircase noise depends on.

        Raises:
            HanseError: POLICY where the budget would be exceeded, with what remains; INVALID_INPUT for terms that this
                site cannot keep; TAMPERED for a damaged ledger; NO_SPACE.
        """
        if task.privacy is None or task.kind is not TaskKind.TRAIN:
            return None
        from hanse_privacy.ledger import Charge

        noise, told = terms_of_work(
            task.privacy, task.participant, task.config, examples=examples, model=model,
            accountant=self._policy.accountant, ring=None if task.masking is None else task.masking.ring,
        )  # fmt: skip
        session = task.masking.session if task.masking is not None else "plain"
        charge = Charge(
            task.project, task.run, f"{task.step}/{task.privacy.attempt}/{session}/{task.id}", noise.event, noise.count,
            f"{noise.mechanism}, {task.privacy.privacy.placement}: {noise.multiplier:.6g} per clip of {noise.clip:g}",
        )  # fmt: skip
        ledger = self._open()
        self._look_back(ledger, task)
        _report_metrics(task.project, ledger.reserve(charge))
        if self._policy.epsilon is not None:
            _report_metrics(WHOLE_SITE, ledger.site_balance())
        return Reservation(charge, noise, told)

    def settle(self, reserved: Reservation | None) -> None:
        """Note that the answer is about to be made durable. Doing the task once more is charged again."""
        if reserved is not None:
            self._open().settle(reserved.charge)

    def with_head(self, task: Task, result: Result) -> Result:
        """The result of a task, with how far the ledger has come where the task was charged."""
        if task.privacy is None or task.kind is not TaskKind.TRAIN or self._ledger is None or self._key is None:
            return result
        from hanse_privacy.witness import signed_head

        entries, digest = self._ledger.head()
        if entries == 0:
            return result  # it was refused before anything was ever charged
        own = {"project": task.project, "participant": task.participant}
        return result.model_copy(update={"ledger": signed_head(entries, digest, **own, key=self._key)})

    def _look_back(self, ledger: Ledger, task: Task) -> None:
        """Hold the ledger against its newest head that the hub has seen, if that is in this site's own signature."""
        from hanse_privacy.witness import is_own

        own = {"project": task.project, "participant": task.participant}
        if task.ledger is not None and self._key is not None and is_own(task.ledger, **own, key=self._key.verify_key):
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


def restore_ledger(
    home: Path, policy: PrivacyPolicy, reason: str, project: str | None = None, spent: float | None = None
) -> None:
    """Go on with a ledger that lacks entries, by the administrator's word.

    Args:
        project, spent: what they were charged for, and the epsilon that they had cost; None: nobody knows.
    """
    from hanse_privacy.accounting.events import Event
    from hanse_privacy.ledger import Charge, Ledger

    lost = None
    if project is not None and spent is not None:
        work = f"lost/{SYSTEM_CLOCK.now().isoformat()}"
        lost = Charge(project, "0" * 12, work, Event("pure", spent), note=f"entries that are lost: {reason}")
    ledger = Ledger(policy.ledger or home, budgets(policy), accountant=policy.accountant)
    try:
        ledger.restored(reason, spent=lost)
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
