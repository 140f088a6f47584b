"""A ledger to which a run says its plan: one entry before its first charge, which says how its charges are added up."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from hanse_fabric.chain import read_chain
from hanse_fabric.errors import HanseError
from hanse_privacy.accounting.events import ReleaseEvent, laplace
from hanse_privacy.accounting.plan import ReleasePlan
from hanse_privacy.ledger import NAME, PLAN, Budget, Budgets, Charge, Ledger, _plan_body
from planned_releases import BEFORE, DELTA, METRICS, ROUNDS, RUN, STEP, STEPS, epsilon, plan


def charges(number: int, run: str = "r", *, project: str = "p", attempt: int = 1) -> list[Charge]:
    work = f"{number}/{attempt}"
    train, told = Charge(project, run, work, STEP, STEPS), Charge(project, run, f"{work}/metrics", METRICS)
    return [Charge(project, run, "before", BEFORE)] if number == 0 else [train, told]


def played(
    folder: Path, rounds: int = ROUNDS, *, said: ReleasePlan | None = RUN, run: str = "r", project: str = "p"
) -> None:
    """A run, with a restart between any two rounds."""
    for number in range(rounds + 1):
        ledger = Ledger(folder, Budgets())
        ledger.reserve(*charges(number, run, project=project), plan=said)
        for charge in charges(number, run, project=project):
            ledger.settle(charge)
        ledger.close()


def spent(folder: Path, **scopes: float) -> dict[str, tuple[float, str]]:
    ledger = Ledger(folder, Budgets(projects={name: Budget(1.0, delta) for name, delta in scopes.items()}))
    found: dict[str, tuple[float, str]] = {
        balance.scope: (balance.spent, balance.added_by) for balance in ledger.balances()
    }
    ledger.close()
    return found


def test_a_run_with_a_plan_has_one_entry_for_it_and_costs_what_the_plan_does(tmp_path: Path) -> None:
    played(tmp_path)
    whole = epsilon(*RUN.releases, plan=RUN)
    assert spent(tmp_path) == {"site": (whole, "plan"), "p": (whole, "plan")}
    assert [entry["what"] for entry in read_chain(tmp_path, NAME)][:2] == [PLAN, "charge"]
    assert [entry["what"] for entry in read_chain(tmp_path, NAME)].count(PLAN) == 1


def test_without_a_plan_a_ledger_tells_what_it_told_before(tmp_path: Path) -> None:
    """As ledgers of earlier versions are: their entries have none."""
    played(tmp_path, said=None)
    assert spent(tmp_path)["p"] == (epsilon(*RUN.releases), "filter")


def test_what_a_run_says_after_it_was_charged_is_no_plan(tmp_path: Path) -> None:
    played(tmp_path, 3, said=None)
    played(tmp_path, said=RUN)  # the same rounds once more, and others
    assert PLAN not in [entry["what"] for entry in read_chain(tmp_path, NAME)]
    assert spent(tmp_path)["p"][1] == "filter"


def test_a_second_plan_of_a_run_changes_nothing(tmp_path: Path) -> None:
    played(tmp_path, 3)
    ledger = Ledger(tmp_path, Budgets())
    ledger.reserve(*charges(4), plan=plan((STEP, 1), (METRICS, 9)))
    ledger.close()
    assert [entry["what"] for entry in read_chain(tmp_path, NAME)].count(PLAN) == 1


def test_the_same_run_again_is_within_the_plans_row_and_another_is_added_up_by_the_filter(tmp_path: Path) -> None:
    played(tmp_path)
    played(tmp_path, run="again")
    twice = [(event, 2 * count) for event, count in RUN.releases]
    assert spent(tmp_path)["p"] == (epsilon(*twice, plan=RUN), "plan")
    ledger = Ledger(tmp_path, Budgets())
    other = plan((laplace(9.0), 3), (METRICS, 3), rounds=3)
    ledger.reserve(Charge("p", "other", "1", laplace(9.0)), plan=other)
    [_, balance] = ledger.balances()
    assert (balance.spent, balance.added_by) == (epsilon(*twice, (laplace(9.0), 1)), "filter")
    ledger.close()


def test_a_plan_that_comes_after_another_runs_charge_counts_for_its_own_run_alone(tmp_path: Path) -> None:
    whole = epsilon(*RUN.releases, plan=RUN)
    ledger = Ledger(tmp_path, Budgets())
    ledger.reserve(Charge("p", "first", "1", laplace(100.0)))
    most = Budget(whole, DELTA)
    for number in range(ROUNDS + 1):
        ledger.reserve(*charges(number), plan=RUN, run=most)
    with pytest.raises(HanseError, match=r"terms\.epsilon"):
        ledger.reserve(*charges(ROUNDS + 1), plan=RUN, run=most)
    assert [balance.added_by for balance in ledger.balances()] == ["filter", "filter"]
    ledger.close()


def test_a_ledger_says_before_what_it_charges(tmp_path: Path) -> None:
    whole = epsilon(*RUN.releases, plan=RUN)
    asked = [Charge("p", "r", "check", event, count) for event, count in RUN.releases]
    for least, enough in ((whole * 1.0001, True), (whole * 0.999, False)):
        ledger = Ledger(tmp_path / "asked", Budgets(project=Budget(least, DELTA)))
        assert ledger.affords(*asked) is ledger.affords(*asked, alone=True) is enough
        assert ledger.affords(*asked, run=Budget(whole, DELTA)) is enough
        ledger.close()


@pytest.mark.parametrize("kept", range(1, 6))
def test_a_kill_between_a_plan_and_its_charges_leaves_a_ledger_that_charges_no_less(tmp_path: Path, kept: int) -> None:
    """The entries of the first two steps are cut after each of them, and the run goes on."""
    played(tmp_path / "whole", 1)
    entries = [
        {name: value for name, value in entry.items() if name not in ("hash", "previous", "time", "at", "number")}
        for entry in read_chain(tmp_path / "whole", NAME)
    ]
    folder = tmp_path / "cut"
    ledger = Ledger(folder, Budgets())
    for entry in itertools.islice(entries, kept):
        ledger._write(entry)
    ledger.close()
    played(folder)
    again = epsilon(*RUN.releases, plan=RUN)
    assert spent(folder)["p"][1] == "plan"
    assert spent(folder)["p"][0] >= again


def test_a_plan_that_follows_from_examples_hides_the_balance_before_they_are_charged(tmp_path: Path) -> None:
    """The preparation, which is charged first, does not depend on them; what its plan's row holds beside it does."""
    for name, said, hidden in (("plan", RUN, True), ("none", None, False)):
        ledger = Ledger(tmp_path / name, Budgets(project=Budget(5.0)))
        ledger.reserve(*charges(0), plan=said)
        assert ledger.by_examples("p") is hidden
        ledger.close()


def test_in_whichever_order_releases_come_the_end_is_the_same(tmp_path: Path) -> None:
    asked = [charge for number in range(ROUNDS + 1) for charge in charges(number)]
    ends = set()
    for seed in range(3):
        ledger = Ledger(tmp_path / str(seed), Budgets())
        for charge in random.Random(seed).sample(asked, len(asked)):
            ledger.reserve(charge, plan=RUN)
        ends.add(ledger.site_balance().spent)
        ledger.close()
    assert ends == {epsilon(*RUN.releases, plan=RUN)}


@pytest.mark.parametrize("second", [plan((ReleaseEvent("pure", 9.0), 1), (METRICS, 1), rounds=1), None])
def test_a_plan_that_was_written_before_a_kill_counts_whatever_is_said_then(
    tmp_path: Path, second: ReleasePlan | None
) -> None:
    """The second has another budget to exceed, and none would have the filter add the charges up."""
    asked = charges(1)
    ledger = Ledger(tmp_path, Budgets(project=Budget(epsilon(*RUN.releases, plan=RUN), DELTA)))
    ledger._write(_plan_body(("p", "r", ""), RUN))
    assert ledger.reserve(*asked, plan=second).added_by == "plan"
    assert [entry["what"] for entry in read_chain(tmp_path, NAME)] == [PLAN, "charge", "charge"]
    ledger.close()
