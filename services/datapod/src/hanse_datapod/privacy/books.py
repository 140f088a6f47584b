"""What a site's privacy ledger says, for people and for the hub, and how it goes on where entries are lost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hanse_datapod.policy.privacy import BudgetPolicy, PrivacyPolicy
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import BudgetTold
from hanse_privacy.accounting.events import ReleaseEvent

if TYPE_CHECKING:
    from hanse_privacy.ledger import Balance, Budgets


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
        charge = Charge(project, "0" * 12, work, ReleaseEvent("pure", spent), note=f"entries that are lost: {reason}")
    ledger = Ledger(policy.ledger or home, budgets(policy), accountant=policy.accountant)
    try:
        ledger.restored(reason, spent=charge)
    finally:
        ledger.close()


def charged(folder: Path) -> bool:
    """Whether the folder has a ledger, or what is left of one."""
    from hanse_privacy.ledger import NAME

    return any((folder / f"{NAME}.{part}").exists() for part in ("jsonl", "head"))


def how(added_by: str) -> str:
    """How charges are added up, in words that go on a line; empty where there is nothing to say."""
    return {
        "plan": "; releases of several kinds, by the plan of their run",
        "filter": "; releases of several kinds and no one plan, by a filter, which tells more",
    }.get(added_by, "")


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
