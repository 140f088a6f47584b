"""The guarantee in words: it says what, from whom, how much and what not, and promises no more than is charged."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hanse_fabric.errors import HanseError
from hanse_fabric.messages.privacy import Privacy, PrivacyTerms
from hanse_privacy.accounting.accountant import make_accountant
from hanse_privacy.accounting.calibration import noise_for
from hanse_privacy.accounting.events import ReleaseEvent
from hanse_privacy.accounting.parts import of_preparation
from hanse_privacy.accounting.plan import ReleasePlan
from hanse_privacy.accounting.terms import round_noise
from hanse_privacy.correlated.optimum import matrix_of
from hanse_privacy.ledger import Budget, Budgets, Charge, Ledger
from hanse_privacy.report import describe, planned_epsilon, preparation_epsilon, run_epsilon, whole_epsilon
from hanse_schemas.job import Job, check_job

SHARES = {"placement": "distributed", "mechanism": "discrete_laplace", "noise": "distributed-gamma", "epsilon": 4.0}

METRICS = {"epsilon": 0.1, "bounds": {"loss": 4.0}}
SEVERAL = {"mode": "compensator", "compensators": ["trustee", "notary", "university"], "needed": 2}


def job(privacy: dict[str, Any] | None = None, **changes: Any) -> Job:
    body: dict[str, Any] = {"rounds": 10, "model": {"name": "logistic"}, "participants": {"minimum": 4}}
    return check_job({**body, "privacy": privacy, **changes})


def test_dp_sgd_hides_an_example_from_everybody_else() -> None:
    said = describe(job({"placement": "local", "mechanism": "dp_sgd", "epsilon": 4.0}))
    assert "any one example" in said
    assert "everybody but the site itself" in said
    assert "epsilon 4 at delta 1e-05 for all 10 rounds" in said
    assert "Groups of examples" in said


def test_dp_sgd_hides_whoever_has_rows_where_the_schema_says_it() -> None:
    said = describe(job({"placement": "local", "mechanism": "dp_sgd", "epsilon": 4.0}), unit="patient_id")
    assert "any one patient_id, with all rows of that patient_id" in said
    assert "Groups of examples" not in said
    assert "rows at several sites" in said


@pytest.mark.parametrize(("unit", "one"), [(None, "example"), ("patient_id", "patient_id")])
def test_dp_sgd_says_that_it_hides_one_also_where_a_site_parts_its_data_itself_but_under_an_earlier_release(
    unit: str | None, one: str
) -> None:
    """There, with one more among them, others are set aside for tests: the noise is not made for these."""
    hidden, _, beyond = describe(
        job({"placement": "local", "mechanism": "dp_sgd", "epsilon": 4.0}), unit=unit
    ).partition("Not covered:")  # fmt: skip
    assert "(added or removed); also where a site sets test data aside itself" in hidden
    assert f"each {one} stands on its side by a keyed hash of its own" in hidden
    assert f"before 0.2.0: with one {one} more, others are set aside there" in beyond
    other = describe(job({"placement": "local", "mechanism": "gaussian", "epsilon": 4.0}), unit=unit)
    assert "test_fraction" not in other


@pytest.mark.parametrize(
    ("field", "value"), [("epsilon", 0), ("epsilon", -1.0), ("delta", 1.0), ("delta", 1.5), ("noise_multiplier", 0)]
)
def test_an_epsilon_of_zero_and_a_delta_of_one_are_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(HanseError, match=rf"privacy\.{field}"):
        job({"placement": "local", "mechanism": "gaussian", "epsilon": 4.0} | {field: value})


def test_central_noise_trusts_the_hub_and_says_so() -> None:
    said = describe(job({"placement": "central", "mechanism": "gaussian", "epsilon": 2.0}, weighting="uniform"))
    assert "are trusted" in said
    assert "The hub itself" in said


def test_shares_of_noise_name_the_coalition_that_defeats_them() -> None:
    masked = {"mode": "compensator"}
    said = describe(job(SHARES, weighting="uniform", secure_aggregation=masked), active=5)
    assert "collude" in said
    assert "compensator" in said


def test_shares_of_noise_name_how_many_of_several_compensators_see_single_updates() -> None:
    said = describe(job(SHARES, weighting="uniform", secure_aggregation=SEVERAL), active=5)
    assert "2 of the compensators trustee, notary, university sees single updates" in said


def test_the_report_gives_the_true_epsilon_of_the_literal_scale() -> None:
    said = describe(job(SHARES | {"scale": "literal"}, secure_aggregation={"mode": "compensator"}))
    assert "the true one of each round's sum is larger by the number of sites in it" in said
    assert "4 times with 4 sites" in said


@pytest.mark.parametrize(
    ("changes", "law"),
    [
        ({"noise": "local-laplace"}, "the sum of 10 Laplace variables, with 10 times the variance"),
        ({"noise": "oblivious"}, "not one Laplace variable"),
        ({"noise": "oblivious-shuffled"}, "not one Laplace variable"),
        ({"noise": "distributed-gamma", "colluding": 2}, "1.25 times the variance of the Laplace variable"),
        ({"noise": "distributed-gamma"}, "one Laplace variable, if all 10"),
        ({"noise": None, "mechanism": "discrete_gaussian", "colluding": 5}, "10 discrete Gaussians, with 2 times"),
    ],
)
def test_the_report_says_what_the_noise_of_a_sum_really_is(changes: dict[str, Any], law: str) -> None:
    masked = {"secure_aggregation": {"mode": "compensator"}, "weighting": "uniform"}
    assert law in describe(job(SHARES | {"colluding": 0} | changes, **masked), active=10)


def test_a_report_on_local_noise_has_no_line_on_the_noise_of_a_sum() -> None:
    assert "Noise in each coordinate" not in describe(
        job({"placement": "local", "mechanism": "gaussian", "epsilon": 4.0})
    )


def test_the_report_refers_to_the_ledger_where_epsilon_depends_on_a_sites_data() -> None:
    assert "ledger" in describe(job({"placement": "local", "mechanism": "dp_sgd", "noise_multiplier": 1.5}))


def test_sites_with_an_epsilon_of_their_own_are_named() -> None:
    section = {"placement": "local", "mechanism": "laplace", "epsilon": 1.0, "site_epsilon": {"c": 0.1}}
    assert "c: 0.1" in describe(job(section))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"stop": {"metric": "loss", "target": 0.1, "mode": "min"}}, "Early stopping"),
        ({"initial_model": "0" * 64}, "initial model"),
        ({}, "Evaluation metrics"),
        ({}, "hyper-parameters"),
        ({}, "number of examples"),
    ],
)
def test_the_report_names_what_the_guarantee_does_not_cover(changes: dict[str, Any], said: str) -> None:
    assert said in describe(job({"placement": "local", "mechanism": "gaussian", "epsilon": 4.0}, **changes))


def test_the_report_does_not_mention_evaluation_that_never_happens() -> None:
    private = {"placement": "local", "mechanism": "gaussian", "epsilon": 4.0}
    assert "Evaluation metrics" not in describe(job(private, evaluate={"every": 0}))


@pytest.mark.parametrize(
    ("sums", "said"),
    [
        (None, "the hub sees every site's update"),
        ({"mode": "ring"}, "no masks"),
        ({"mode": "compensator"}, "the compensator pool"),
        (SEVERAL, "the aggregator and 2 of the compensators trustee, notary, university pool"),
        ({"mode": "pairwise", "threshold": 3}, "3 of the sites"),
    ],
)
def test_the_report_claims_nothing_without_noise(sums: dict[str, Any] | None, said: str) -> None:
    told = describe(job(secure_aggregation=sums))
    assert told.startswith("No differential privacy")
    assert said in told


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("multiplier", [2.0, 30.0])
def test_a_multipliers_epsilon_is_that_of_the_ledger_within_its_accountants_slack(
    mechanism: str, multiplier: float
) -> None:
    """The exact curve of normal noise may be below Renyi's; never above what the ledger charges."""
    privacy = job({"placement": "local", "mechanism": mechanism, "noise_multiplier": multiplier}).privacy
    assert privacy is not None
    made = round_noise(PrivacyTerms(privacy=privacy, rounds=10, round=1, active=4), "a")
    accountant = make_accountant("pld")
    accountant.compose(made.event, 10)
    told = run_epsilon(privacy, 10)
    assert told is not None
    assert math.isfinite(told)
    assert told >= accountant.epsilon(privacy.delta) - 1e-3


def test_a_delta_of_zero_is_said_to_be_so_but_for_how_noise_is_drawn() -> None:
    """Samplers are within a proved distance of their laws, which is a delta."""
    said = describe(job({"placement": "local", "mechanism": "laplace", "epsilon": 4.0, "delta": 0.0}))
    assert "epsilon 4 at delta 0 (but for 2^-50, which drawing up to 2^50 numbers of noise adds) for all 10" in said
    assert "2^-50" not in describe(job({"placement": "local", "mechanism": "laplace", "epsilon": 4.0}))


def test_the_report_loads_no_numpy() -> None:
    program = "import sys, hanse_privacy.report; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=120).returncode == 0


def test_correlated_noise_hides_a_sites_whole_run_and_says_what_its_ledger_charges() -> None:
    section = {
        "placement": "central", "mechanism": "dp_ftrl", "noise_multiplier": 8.0, "min_separation": 5,
        "matrix": {"name": "banded", "bands": 5},
    }  # fmt: skip
    privacy = Privacy.model_validate(section)
    told = run_epsilon(privacy, 20)
    correlation = matrix_of(privacy, 20)
    made = round_noise(PrivacyTerms(privacy=privacy, rounds=20, round=1, active=4, correlation=correlation), "a")
    accountant = make_accountant()
    accountant.compose(made.event)
    assert told == pytest.approx(accountant.epsilon(1e-5), rel=1e-6)
    text = describe(job(section, rounds=20, weighting="uniform", participants={"minimum": 4, "fraction": 0.2}))
    assert "one site contributes to the run, in rounds at least 5 apart" in text
    assert f"epsilon {told:.4g}" in text


@pytest.mark.parametrize(
    "privacy",
    [
        {"placement": "local", "mechanism": "gaussian", "epsilon": 4.0, "preparation": {"share": 0.25}},
        SHARES | {"preparation": {"share": 0.25}},
    ],
    ids=["local", "shares"],
)  # fmt: skip
def test_what_a_preparation_takes_of_epsilon_the_rounds_do_not_have(privacy: dict[str, Any]) -> None:
    wanted = Privacy.model_validate(privacy)
    terms = PrivacyTerms(privacy=wanted, rounds=10, round=1, active=4)
    noise = round_noise(terms, "site-0")
    accountant = make_accountant("pld")
    accountant.compose(noise.event, 10 * noise.count)
    # With a Laplace kind delta is not needed; what composition gains by it is not asked of the rounds here.
    assert 0.5 * 3.0 < accountant.epsilon(0.75 * wanted.delta) <= 3.0 * (1 + 1e-9)
    said = describe(job(privacy, secure_aggregation={"mode": "compensator"}))
    assert "epsilon 4 at delta 1e-05 for all 10 rounds together, each done once" in said
    assert "and the preparation of the tables, which is charged 0.25 of both" in said


@pytest.mark.parametrize("mechanism", ["gaussian", "discrete_gaussian"])
@pytest.mark.parametrize(
    "noise", [{"epsilon": 2.0}, {"noise_multiplier": 30.0}, {"epsilon": 2.0, "preparation": {"share": 0.2}}]
)
def test_a_run_of_several_kinds_of_releases_is_said_to_cost_what_the_ledger_charges(
    noise: dict[str, Any], mechanism: str, tmp_path: Path
) -> None:
    """Played in a ledger, which knows the run's plan. It is less than the sum of their epsilons."""
    metrics = {"epsilon": 0.01, "bounds": {"loss": 4.0}}
    section = {"placement": "local", "mechanism": mechanism, "metrics": metrics} | noise
    wanted = job(section, evaluate={"every": 1})
    assert wanted.privacy is not None
    made = round_noise(PrivacyTerms(privacy=wanted.privacy, rounds=10, round=1, active=4), "a")
    ledger = Ledger(tmp_path, Budgets(project=Budget(1e6, wanted.privacy.delta)))
    epsilon, delta, multiplier = of_preparation(wanted.privacy, "a")
    releases = [(made.event, 10), (ReleaseEvent("pure", 0.01), 20)]
    if wanted.privacy.preparation is not None and epsilon is not None:
        amount = multiplier or noise_for("gaussian", epsilon, delta, 1)
        plan = ReleasePlan.of([*releases, (ReleaseEvent("gaussian", amount), 1)], 10)
        ledger.reserve(Charge("p", "r", "preparation", ReleaseEvent("gaussian", amount)), plan=plan)
    for number in range(10):
        ledger.reserve(
            Charge("p", "r", f"{number}", made.event),
            Charge("p", "r", f"{number}/metrics", ReleaseEvent("pure", 0.01)),
            Charge("p", "r", f"{number}/evaluated", ReleaseEvent("pure", 0.01)),
            plan=ReleasePlan.of(releases, 10),
        )
    [_, balance] = ledger.balances()
    ledger.close()
    told, beside = planned_epsilon(wanted), whole_epsilon(wanted)
    assert told is not None
    assert beside is not None
    assert balance.spent <= told * (1 + 1e-8)
    assert told <= 1.001 * balance.spent
    assert f"the ledger adds them up by that plan: at most epsilon {told:.4g}" in describe(wanted)
    rounds = run_epsilon(wanted.privacy, 10)
    assert rounds is not None
    assert told < rounds + 20 * 0.01 < beside
    assert f"and tells more: epsilon {beside:.4g} of this one" in describe(wanted)


@pytest.mark.parametrize(("more", "most"), [({"preparation": {"share": 0.1}}, 3.0), ({"metrics": METRICS}, 4.0)])
def test_of_dp_sgd_beside_other_releases_no_more_than_their_sum_is_said(more: dict[str, Any], most: float) -> None:
    section = {"placement": "local", "mechanism": "dp_sgd", "epsilon": 3.0}
    wanted = job(section | more, evaluate={"every": 1})
    assert whole_epsilon(job(section)) == 3.0
    assert planned_epsilon(wanted) == pytest.approx(most)
    assert whole_epsilon(wanted) is None  # beside other runs each site's ledger alone can say
    assert f"by that plan: at most epsilon {most:g}" in describe(wanted)
    assert "several kinds" not in describe(job(section))
    by_multiplier = job({"placement": "local", "mechanism": "dp_sgd", "noise_multiplier": 1.0, "metrics": METRICS})
    assert planned_epsilon(by_multiplier) is whole_epsilon(by_multiplier) is None
    assert "by how many examples a site has" in describe(by_multiplier)


def test_a_preparation_beside_a_noise_multiplier_is_said_to_be_on_top() -> None:
    own = {"noise_multiplier": 5.0}
    privacy = {"placement": "local", "mechanism": "gaussian", "noise_multiplier": 20.0, "preparation": own}
    wanted = Privacy.model_validate(privacy)
    cost = preparation_epsilon(wanted)
    accountant = make_accountant("pld")
    accountant.compose(ReleaseEvent("gaussian", 5.0))
    assert cost == pytest.approx(accountant.epsilon(wanted.delta))
    assert f"costs epsilon {cost:.4g}, on top" in describe(job(privacy))
    rounds = run_epsilon(wanted, 10)
    assert rounds is not None
    assert whole_epsilon(job(privacy)) == pytest.approx(rounds + cost)
