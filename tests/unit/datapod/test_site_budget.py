"""What the site's budget says before a run and in a refusal, and what it lets nobody learn of how many examples there
are; which charges stay open; and whose word on the ledger counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hanse_datapod.policy.privacy import PrivacyPolicy
from hanse_datapod.privacy.budget import SiteBudget
from hanse_fabric.chain import read_chain
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import Task
from hanse_fabric.telemetry.catalogue import PRIVACY_BUDGET, PRIVACY_SPENT
from hanse_privacy.ledger import NAME, Ledger
from hanse_privacy.witness import signed_head
from hanse_site.answering import result_for
from open_files import open_under
from unit.datapod.private_tasks import correlated, terms
from unit.datapod.site_actors import task

GIVEN = {"noise_multiplier": None, "epsilon": 3.0}
METRICS = {"metrics": {"epsilon": 0.5, "bounds": {"loss": 4.0}}}
KEY = SigningKey.create()


def sampled(step: str = "r1-train", **section: Any) -> Task:
    """Noise that follows from the examples; each of its steps takes all, which is quickly reckoned."""
    given = {"mechanism": "dp_sgd", "noise_multiplier": 2.0} | section
    return task(step, privacy=terms(**given), config={"train": {"batch_size": 4096}})


def budget_of(home: Path, *, hidden: bool = False, charged: Task | None = None, **policy: Any) -> SiteBudget:
    """A site's budget, of which a task has its part already."""
    made = SiteBudget(home, PrivacyPolicy.model_validate(policy), hidden=hidden)
    if charged is not None:
        made.reserve(charged, examples=1000, model=None)
    return made


def refusal(budget: SiteBudget, asked: Task) -> HanseError:
    with pytest.raises(HanseError) as caught:
        budget.reserve(asked, examples=1000, model=None)
    budget.close()
    return caught.value


@pytest.mark.parametrize("hidden", [True, False])
def test_work_that_was_charged_otherwise_is_refused_without_the_noise_that_follows_from_the_examples(
    tmp_path: Path, hidden: bool
) -> None:
    said = refusal(budget_of(tmp_path, hidden=hidden, charged=sampled()), sampled(noise_multiplier=3.0))
    assert said.code is ErrorCode.CONFLICT
    assert ("was charged as dp_sgd, local: 2 per clip" in said.message) is not hidden
    assert ("the site has charged the same work otherwise" in said.message) is hidden


@pytest.mark.parametrize("hidden", [True, False])
def test_figures_of_any_refusal_are_kept_back_once_a_charge_followed_from_the_examples(
    tmp_path: Path, hidden: bool
) -> None:
    budget = budget_of(tmp_path, hidden=hidden, charged=sampled(), epsilon=3.0)
    said = refusal(budget, task("r2-train", privacy=terms(noise_multiplier=1.0)))
    assert said.code is ErrorCode.POLICY
    assert said.message.startswith("the site's privacy budget forbids it")
    assert ("remains" in said.message) is not hidden


def test_a_ledger_that_was_changed_is_said_as_such_by_a_site_that_hides_its_balance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = budget_of(tmp_path, hidden=True, charged=sampled())

    def damaged(*_: object, **__: object) -> None:
        raise HanseError(ErrorCode.TAMPERED, "privacy-ledger.jsonl: line 1 was changed")

    monkeypatch.setattr(Ledger, "reserve", damaged)
    said = refusal(budget, sampled("r2-train"))
    assert (said.code, said.message) == (ErrorCode.TAMPERED, "privacy-ledger.jsonl: line 1 was changed")


def test_a_site_tells_what_remains_unless_it_is_made_to_hide_it(tmp_path: Path) -> None:
    budget = SiteBudget(tmp_path, PrivacyPolicy(epsilon=20.0))
    budget.reserve(sampled(), examples=1000, model=None)
    left = budget.remaining("triage")
    assert left is not None
    assert 0 < left < 20
    budget.close()


def test_a_run_without_privacy_costs_nothing_and_is_always_afforded(tmp_path: Path) -> None:
    budget = budget_of(tmp_path, epsilon=0.001)
    assert budget.affords(task(), 1000, examples=None) is True
    made = budget.reserve(task(), examples=1000, model=None)
    assert made is None
    budget.settle(made)
    budget.close()


@pytest.mark.parametrize(
    ("rounds", "section", "said"),
    [(4, {}, None), (4, METRICS, False), (100, {}, False)],
    ids=["enough alone, not now", "too much together", "too much alone"],
)
def test_who_asks_whether_a_run_is_afforded_learns_nothing_of_a_balance_that_follows_from_the_examples(
    tmp_path: Path, rounds: int, section: dict[str, Any], said: bool | None
) -> None:
    """But that the run is too much for what the site gives at most, which its policy says. The control is a site that
    hides nothing."""
    asked = task(privacy=terms(**section))
    for hidden, answer in ((True, said), (False, False)):
        budget = budget_of(tmp_path / str(hidden), hidden=hidden, charged=sampled(), epsilon=3.0)
        assert budget.affords(asked, rounds, examples=1000) is answer
        budget.close()


def test_a_site_without_a_ceiling_affords_any_run_though_it_hides_its_balance(tmp_path: Path) -> None:
    budget = budget_of(tmp_path, hidden=True, charged=sampled())
    assert budget.affords(task(privacy=terms()), 1000, examples=1000) is True
    assert budget.affords(task(privacy=terms()), 1000, examples=1000, most=1.0) is False
    budget.close()


def test_where_examples_may_not_be_told_a_run_of_steps_is_afforded_for_certain_only_by_an_untouched_budget(
    tmp_path: Path,
) -> None:
    """Else the sum depends on what the examples make of the steps."""
    steps, with_metrics = sampled(**GIVEN), sampled(**GIVEN | METRICS)
    untouched = budget_of(tmp_path / "untouched", epsilon=9.0)
    assert untouched.affords(steps, 10, examples=None) is True
    assert untouched.affords(with_metrics, 10, examples=None) is None
    untouched.close()
    short = budget_of(tmp_path / "short", epsilon=2.9)
    assert short.affords(steps, 10, examples=None) is False
    told = sampled(**GIVEN | {"metrics": {"epsilon": 0.01, "bounds": {"loss": 4.0}}})
    assert short.affords(told, 10, examples=None) is False, "the steps alone are too much, though metrics are not"
    short.close()
    begun = budget_of(tmp_path / "begun", charged=task("r9-train", privacy=terms(noise_multiplier=4000.0)), epsilon=9.0)
    assert begun.affords(steps, 10, examples=None) is None
    begun.close()


def test_a_run_whose_cost_goes_by_the_models_size_is_afforded_for_certain_where_the_job_gives_its_epsilon(
    tmp_path: Path,
) -> None:
    def said(ceiling: float, **section: Any) -> bool | None:
        home = tmp_path / f"{ceiling} {len(section)}"
        budget = budget_of(home, charged=task("r9-train", privacy=terms()), epsilon=ceiling)
        found = budget.affords(task(privacy=terms(mechanism="staircase", **section)), 10, examples=1000)
        budget.close()
        return found

    assert [said(ceiling, **GIVEN) for ceiling in (9.0, 3.2, 2.0)] == [True, None, False]
    assert said(9.0, noise_multiplier=4.0) is None


def test_the_one_charge_of_a_run_with_correlated_noise_stays_open_to_its_end(tmp_path: Path) -> None:
    """Were it settled, each round would be charged for the whole run again."""
    budget = budget_of(tmp_path)
    for number in (1, 3):
        asked = task(f"r{number}-train", round=number, privacy=correlated(number))
        budget.settle(budget.reserve(asked, examples=1000, model=None))
    budget.close()
    told = [entry["what"] for entry in read_chain(tmp_path, NAME)]
    assert (told.count("charge"), told.count("settled")) == (1, 0)


def test_a_charge_is_named_by_the_work_alone_where_no_other_home_shares_the_ledger(tmp_path: Path) -> None:
    """A site that was restarted, by a newer release, too, knows by it what is paid."""
    asked = task(privacy=terms())
    made = budget_of(tmp_path).reserve(asked, examples=1000, model=None)
    assert made is not None
    assert [charge.work for charge in made.charges] == [f"r1-train/1/plain/{asked.id}"]


def test_a_ledger_that_is_older_than_what_the_site_itself_remembers_charges_nothing_whatever_the_hub_says(
    tmp_path: Path,
) -> None:
    remembered = signed_head(9, "a" * 64, project="triage", participant="north", key=KEY)
    budget = SiteBudget(tmp_path, PrivacyPolicy(), key=KEY, answered=lambda: remembered)
    said = refusal(budget, task(privacy=terms()))
    assert (said.code, "older than what it has signed" in said.message) == (ErrorCode.POLICY, True)


def test_a_site_without_a_key_knows_no_head_for_its_own_and_signs_none(tmp_path: Path) -> None:
    head = signed_head(9, "a" * 64, project="triage", participant="north", key=KEY)
    asked, budget = task(privacy=terms(), ledger=head), budget_of(tmp_path)
    assert budget.reserve(asked, examples=1000, model=None) is not None
    assert budget.with_head(asked, result_for(asked)).ledger is None
    budget.close()


def test_an_answer_before_anything_was_charged_has_no_head(tmp_path: Path) -> None:
    asked = task(privacy=terms())
    budget = SiteBudget(tmp_path, PrivacyPolicy(), key=KEY)
    assert budget.with_head(asked, result_for(asked)).ledger is None
    assert not list(tmp_path.iterdir()), "no ledger was begun"


def test_a_closed_budget_has_given_its_files_back(tmp_path: Path) -> None:
    budget = budget_of(tmp_path, charged=task(privacy=terms()))
    assert open_under(tmp_path)
    budget.close()
    assert not open_under(tmp_path)


def test_a_site_without_a_ceiling_shows_what_is_spent_and_no_ceiling(tmp_path: Path) -> None:
    before = PRIVACY_BUDGET.value(project="boundless")
    budget_of(tmp_path, charged=task(project="boundless", privacy=terms())).close()
    assert PRIVACY_BUDGET.value(project="boundless") == before
    assert PRIVACY_SPENT.value(project="boundless") > 0
