"""The grid on which losses are added: so many points and no more, whatever numbers somebody names, and never less told
than what is true."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse_privacy.accounting import grid, pld
from hanse_privacy.accounting.events import ReleaseEvent, gaussian, laplace
from hanse_privacy.accounting.rdp import RdpAccountant
from hanse_privacy.accounting.several import normal_and_pure
from hanse_privacy.noise.gaussian import gaussian_epsilon
from points_of_sums import counted
from privacy_oracle import epsilon_of_mixed, epsilon_of_sampled

__all__ = ["counted"]
DELTA = 1e-5
STEPS, ANSWERS = 470, 10
STEP = gaussian(1.0, 0.02)
MULTIPLIERS = (1e-3, 1.0, 10.0, 1e4, 1e6)
EPSILONS = (1e-9, 1e-5, 1e-3, 0.05, 1.0, 10.0)
PAIRS = [
    (multiplier, epsilon)
    for (at, multiplier), (beside, epsilon) in itertools.product(enumerate(MULTIPLIERS), enumerate(EPSILONS))
    if (at + beside) % 2 == 0 or (at in (0, 4) and beside == 5)
]
"""Each with half of the others, and the ends with the ends."""
Releases = tuple[tuple[ReleaseEvent, int], ...]


def run(multiplier: float, epsilon: float) -> Releases:
    """Steps on samples, a preparation, metrics."""
    return ((STEP, STEPS), (gaussian(multiplier), 1), (ReleaseEvent("pure", epsilon), ANSWERS))


@pytest.fixture(scope="module")
def steps_alone() -> float:
    return epsilon_of_sampled(STEP.amount, STEP.rate, STEPS, DELTA)


def test_a_grid_has_so_many_points_whatever_noise_and_epsilon_a_plan_names(counted: list[float]) -> None:
    for multiplier, epsilon, answers in itertools.product(MULTIPLIERS, EPSILONS, (1, 10, 10**9)):
        pld.together((*run(multiplier, epsilon)[:2], (ReleaseEvent("pure", epsilon), answers)), DELTA)
    assert len(counted) > 2 * len(EPSILONS)
    assert max(counted) <= grid.MOST_POINTS


@pytest.mark.parametrize(
    ("event", "count"),
    [
        (gaussian(0.2, 1e-4), 100), (gaussian(0.15, 1e-6), 10), (gaussian(1e4, 0.02), 10**9), (gaussian(30.0), 10**4),
        (laplace(1e3), 10**6), (laplace(1e5), 10**10), (ReleaseEvent("pure", 1e-5), 10**9),
        (ReleaseEvent("pure", 1e-4), 10**12),
    ],
)  # fmt: skip
def test_a_grid_has_so_many_points_however_many_releases_are_alike_or_beside_others(
    event: ReleaseEvent, count: int, counted: list[float]
) -> None:
    pld.convolved(event, count, DELTA)
    pld.together(((event, count), (STEP, 1), (ReleaseEvent("pure", 0.01), 3)), DELTA)
    assert max(counted, default=0) <= grid.MOST_POINTS


@pytest.mark.parametrize(("multiplier", "epsilon"), PAIRS)
def test_a_run_costs_no_less_than_each_of_its_parts_and_no_more_than_their_sum(
    multiplier: float, epsilon: float, steps_alone: float
) -> None:
    told = pld.together(run(multiplier, epsilon), DELTA)
    beside = normal_and_pure(0.5 / multiplier**2, {epsilon: ANSWERS}, DELTA) if multiplier >= 1 else 0.0
    steps = RdpAccountant()
    steps.compose(STEP, STEPS)
    little = math.inf if multiplier < 0.01 else gaussian_epsilon(multiplier, DELTA / 2)  # as Renyi divergences have it
    most = steps.epsilon(DELTA / 2) + little + epsilon * ANSWERS
    assert max(steps_alone, gaussian_epsilon(multiplier, DELTA), beside) * (1 - 1e-4) <= told <= most


@pytest.mark.parametrize(("multiplier", "epsilon"), [(10.0, 1e-9), (1e4, 1e-3), (1e6, 0.05), (10.0, 1.0)])
def test_a_coarse_grid_costs_at_most_one_percent(multiplier: float, epsilon: float) -> None:
    # The oracle's own grid is too coarse for losses that are next to none.
    known = run(multiplier, epsilon)[: 1 if multiplier > 100 else 2]
    releases = [(str(event.kind), event.amount, event.rate, count) for event, count in known]
    if epsilon > 1e-6:
        releases.append(("pure", epsilon, 1.0, ANSWERS))
    true = epsilon_of_mixed(releases, DELTA)
    assert true * (1 - 1e-4) <= pld.together(run(multiplier, epsilon), DELTA) <= 1.01 * true


@pytest.mark.parametrize(
    ("event", "count", "width"),
    [
        (STEP, STEPS, 1e-3), (gaussian(0.2, 1e-4), 100, 2e-3), (gaussian(0.5, 0.001), 10**4, 5e-4), (STEP, 1, 1e-4),
        (gaussian(1e4, 0.02), 10**9, 4e-3), (gaussian(30.0), 1, 1e-3), (gaussian(1e6), 1, 1e-3),
        (laplace(20.0), 50, 1e-3), (laplace(1e3), 10**5, 2e-3), (laplace(0.5), 3, 1e-3),
    ],
)  # fmt: skip
def test_no_distribution_has_more_points_than_were_counted_before(
    event: ReleaseEvent, count: int, width: float
) -> None:
    made = pld._distribution(event, count, width)
    assert max(made._pmf_remove.size, made._pmf_add.size) <= grid.points([(event, count)], {}, width)


@given(
    st.floats(-9.0, 1.0).map(lambda power: 10**power), st.integers(1, 400), st.floats(-5.0, 0.0).map(lambda p: 10**p)
)
@settings(deadline=None, max_examples=60)
def test_responses_on_any_grid_tell_no_less_than_they_do(epsilon: float, count: int, width: float) -> None:
    masses, infinite = grid.responses(epsilon, count, max(width, epsilon * count / 1e5))
    width = max(width, epsilon * count / 1e5)
    assert len(masses) <= grid.points([], {epsilon: count}, width)
    likely = 1 / (1 + math.exp(-epsilon))
    exact = [
        ((2 * ups - count) * epsilon, math.comb(count, ups) * likely**ups * (1 - likely) ** (count - ups))
        for ups in range(count + 1)
    ]
    for at in (0.0, 0.3 * epsilon, math.sqrt(count) * epsilon, 0.9 * count * epsilon):
        true = math.fsum(chance * -math.expm1(at - loss) for loss, chance in exact if loss > at)
        told = math.fsum(mass * -math.expm1(at - step * width) for step, mass in masses.items() if step * width > at)
        assert true <= (told + infinite) * (1 + 1e-9) + 1e-18


def test_next_to_no_losses_cost_next_to_nothing() -> None:
    alone = pld.convolved(STEP, STEPS, DELTA)
    assert alone <= pld.together(((STEP, STEPS), (ReleaseEvent("pure", 1e-9), 1)), DELTA) <= alone + 1e-8
    assert pld.together(run(1e6, 1e-9), DELTA) <= alone * 1.001
