"""Accountants against known values, against each other, and against the exact curve: never below it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse_fabric.errors import HanseError
from hanse_fabric.messages.privacy import Privacy, PrivacyTerms
from hanse_privacy.accounting.accountant import AccountantName, make_accountant
from hanse_privacy.accounting.calibration import noise_for
from hanse_privacy.accounting.events import Event, discrete_gaussian, gaussian, laplace
from hanse_privacy.accounting.terms import Work, round_noise
from hanse_privacy.noise.gaussian import gaussian_epsilon

DELTA = 1e-5
# The private runs of Nasirigerdeh et al. (2023): epsilon, delta, rate, steps; and the sigma that RDP gives for them.
TABLE = [
    (2, 1e-5, 0.08192, 650, 4.611), (4, 1e-5, 0.08192, 910, 2.998), (6, 1e-5, 0.06144, 1190, 1.914),
    (8, 1e-5, 0.06144, 1360, 1.640), (2, 1e-5, 0.08192, 1040, 5.775), (4, 1e-5, 0.08192, 1040, 3.187),
    (6, 1e-5, 0.06144, 1700, 2.225), (8, 1e-5, 0.06144, 1700, 1.793), (6, 1e-5, 0.01024, 4900, 0.888),
    (6, 1e-5, 0.04096, 1250, 1.412), (6, 1e-5, 0.02048, 3430, 1.218), (6, 1e-5, 0.10814, 700, 2.499),
    (8, 8e-7, 0.00639, 15700, 0.855), (8, 1e-5, 0.0512, 2000, 1.647), (8, 1e-5, 0.1024, 1000, 2.223),
    (8, 1e-5, 0.2048, 500, 3.056), (8, 1e-5, 0.4096, 300, 4.625), (7, 1e-5, 0.6144, 200, 6.275),
]  # fmt: skip


def epsilon(*events: tuple[Event, int], by: AccountantName = "rdp", delta: float = DELTA) -> float:
    accountant = make_accountant(by)
    for event, count in events:
        accountant.compose(event, count)
    return accountant.epsilon(delta)


def test_the_known_epsilon_of_renyi_accounting_is_met() -> None:
    assert epsilon((gaussian(1.5, 0.04), 2250)) == pytest.approx(7.3291, abs=5e-4)


@pytest.mark.parametrize(("budget", "delta", "rate", "steps", "sigma"), TABLE)
def test_the_noise_multipliers_of_published_private_runs_are_met_within_half_a_percent(
    budget: float, delta: float, rate: float, steps: int, sigma: float
) -> None:
    """The least noise lies between the two: cheaper to check than to search for."""
    assert epsilon((gaussian(sigma * 1.005, rate), steps), delta=delta) <= budget
    assert epsilon((gaussian(sigma * 0.995, rate), steps), delta=delta) > budget


def test_the_search_finds_the_least_noise_that_keeps_the_budget() -> None:
    found = noise_for("gaussian", 8, DELTA, 500, rate=0.2048)
    assert found == pytest.approx(3.056, rel=0.005)
    assert epsilon((gaussian(found, 0.2048), 500)) <= 8 < epsilon((gaussian(found * 0.999, 0.2048), 500))


@given(st.floats(0.3, 100), st.integers(1, 500), st.sampled_from([1e-9, 1e-5, 1e-2]))
@settings(deadline=None, max_examples=50)
def test_no_accountant_is_below_the_exact_curve_of_composed_normal_noise(
    noise: float, count: int, delta: float
) -> None:
    exact = gaussian_epsilon(noise / math.sqrt(count), delta)
    renyi = epsilon((gaussian(noise), count), delta=delta)
    assert renyi >= exact
    assert epsilon((discrete_gaussian(noise), count), delta=delta) == pytest.approx(renyi)


@pytest.mark.parametrize(("noise", "count"), [(1.0, 1), (20.0, 400), (2.0, 3)])
def test_the_two_accountants_agree_and_the_distributions_are_the_tighter(noise: float, count: int) -> None:
    exact = gaussian_epsilon(noise / math.sqrt(count), DELTA)
    tight = epsilon((gaussian(noise), count), by="pld")
    assert exact <= tight <= exact + 1e-3
    assert tight <= epsilon((gaussian(noise), count)) <= 1.2 * exact


def test_the_two_accountants_agree_under_sampling() -> None:
    tight, renyi = (epsilon((gaussian(1.5, 0.04), 2250), by=by) for by in ("pld", "rdp"))
    assert 0.85 * renyi <= tight <= renyi


@pytest.mark.parametrize("by", ["rdp", "pld"])
@pytest.mark.parametrize("event", [laplace(4.0), Event("pure", 0.25)])
def test_pure_releases_cost_at_most_their_sum_and_without_delta_exactly_it(by: AccountantName, event: Event) -> None:
    assert epsilon((event, 100), by=by, delta=0.0) == pytest.approx(25.0)
    assert epsilon((event, 100), by=by) < 25.0
    assert epsilon((event, 1), by=by) <= 0.25 + 1e-3


def test_one_laplace_release_costs_its_epsilon_where_delta_is_negligible() -> None:
    assert epsilon((laplace(2.0), 1), by="pld", delta=1e-12) == pytest.approx(0.5, abs=2e-3)


@given(st.lists(st.tuples(st.floats(0.5, 20), st.integers(1, 50)), min_size=2, max_size=4))
@settings(deadline=None, max_examples=30)
def test_composition_does_not_depend_on_order_and_never_shrinks(parts: list[tuple[float, int]]) -> None:
    events = [(gaussian(noise), count) for noise, count in parts]
    forward, backward = epsilon(*events), epsilon(*reversed(events))
    assert forward == pytest.approx(backward)
    assert forward >= max(epsilon(event) for event in events) - 1e-9


def test_mixed_kinds_compose_and_cost_no_more_than_basic_composition() -> None:
    mixed = epsilon((gaussian(5.0), 10), (laplace(10.0), 3), (Event("pure", 0.1), 2))
    assert epsilon((gaussian(5.0), 10)) < mixed <= epsilon((gaussian(5.0), 10)) + 0.3 + 0.2


def test_normal_noise_keeps_no_epsilon_without_delta() -> None:
    assert epsilon((gaussian(5.0), 1), delta=0.0) == math.inf
    assert epsilon((gaussian(5.0), 1), by="pld", delta=0.0) == math.inf
    assert make_accountant("rdp").epsilon(0.0) == 0.0


@pytest.mark.parametrize(
    ("kind", "amount", "rate"),
    [
        ("gaussian", 0.0, 1.0),
        ("gaussian", math.nan, 1.0),
        ("laplace", 1.0, 0.5),
        ("gaussian", 1.0, 0.0),
        ("x", 1.0, 1.0),
    ],
)
def test_events_that_make_no_sense_are_refused(kind: str, amount: float, rate: float) -> None:
    with pytest.raises(HanseError, match="event"):
        Event(kind, amount, rate)  # type: ignore[arg-type]


@pytest.mark.parametrize(("budget", "delta", "steps"), [(0.0, DELTA, 1), (1.0, 0.0, 1), (1.0, DELTA, 0), (1.0, 1.0, 1)])
def test_budgets_that_make_no_sense_are_refused(budget: float, delta: float, steps: int) -> None:
    with pytest.raises(HanseError):
        noise_for("gaussian", budget, delta, steps, rate=0.1)


def test_a_budget_that_no_noise_can_keep_is_refused() -> None:
    with pytest.raises(HanseError, match="cannot be kept"):
        noise_for("gaussian", 1e-9, 1e-12, 1000)


def terms(rounds: int = 10, active: int = 4, **section: object) -> PrivacyTerms:
    return PrivacyTerms(privacy=Privacy.model_validate(section), rounds=rounds, round=1, active=active)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace", "discrete_gaussian", "discrete_laplace", "staircase"])
def test_all_rounds_together_spend_the_budget_and_not_more(mechanism: str) -> None:
    made = round_noise(terms(placement="local", mechanism=mechanism, epsilon=3.0), "a", coordinates=20)
    assert 2.95 <= epsilon((made.event, made.count * 10)) <= 3.0
    assert made.scale == made.multiplier


def test_a_multiplier_is_noise_per_clip_and_the_sensitivity_is_twice_the_clip() -> None:
    made = round_noise(terms(placement="local", mechanism="gaussian", clip=0.5, noise_multiplier=4.0), "a")
    assert (made.scale, made.event) == (2.0, gaussian(2.0))


def test_a_site_may_have_an_epsilon_of_its_own() -> None:
    section = {"placement": "local", "mechanism": "laplace", "epsilon": 1.0, "delta": 0.0, "site_epsilon": {"c": 0.1}}
    assert round_noise(terms(1, **section), "a").scale == pytest.approx(2.0)
    assert round_noise(terms(1, **section), "c").scale == pytest.approx(20.0)


def test_dp_sgd_is_charged_every_step_at_the_rate_of_its_site() -> None:
    work = Work.of(5000, 512, epochs=1, steps=None)
    made = round_noise(terms(100, placement="local", mechanism="dp_sgd", epsilon=8.0), "a", work=work)
    assert (made.count, made.event.rate) == (10, 0.1024)
    assert made.multiplier == pytest.approx(2.223, rel=0.005)


def test_the_ledger_charges_the_true_epsilon_of_the_literal_scale() -> None:
    section = {"placement": "distributed", "mechanism": "discrete_laplace", "epsilon": 1.0, "delta": 0.0}
    honest, literal = (round_noise(terms(1, 5, **section, scale=scale), "a") for scale in ("calibrated", "literal"))
    assert literal.scale == pytest.approx(honest.scale / 5)
    assert literal.event.epsilon == pytest.approx(5 * honest.event.epsilon)


@given(st.floats(1e-3, 1e4), st.integers(1, 1000), st.sampled_from([1e-9, 1e-5, 1e-1, 0.9]))
@settings(deadline=None, max_examples=30)
def test_the_closed_forms_are_those_of_dp_accounting(scale: float, count: int, delta: float) -> None:
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant, compute_epsilon

    from hanse_privacy.accounting.rdp import curve_of, epsilon_of, orders

    theirs = RdpAccountant(list(orders()))
    theirs.compose(dp_accounting.LaplaceDpEvent(scale))
    curve = curve_of(laplace(scale))
    assert curve == pytest.approx(theirs.rdp, rel=1e-9, abs=1e-15)
    assert epsilon_of(curve * count, delta) == pytest.approx(compute_epsilon(orders(), curve * count, delta)[0])


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_a_chance_that_a_release_is_not_as_it_should_be_is_a_part_of_delta(accountant):
    def epsilon(delta, chance):
        made = make_accountant(accountant)
        made.compose(Event("gaussian", 4.0))
        if chance:
            made.compose(Event("chance", chance), 10)
        return made.epsilon(delta)

    assert epsilon(2e-5, 1e-6) == epsilon(1e-5, 0) > epsilon(2e-5, 0)
    assert epsilon(1e-6, 1e-6) == math.inf
    assert epsilon(1e-5, 2.0**-64) == pytest.approx(epsilon(1e-5, 0))
