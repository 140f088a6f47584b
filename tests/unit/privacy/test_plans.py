"""A run's plan: what is released of it is charged by the plan's own row, never below what was released, and whatever
else is asked is charged beside it."""

from __future__ import annotations

import itertools
import math
from functools import cache

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hanse_fabric.errors import HanseError
from hanse_privacy.accounting.accountant import delta_of_alike
from hanse_privacy.accounting.events import ReleaseEvent, gaussian, laplace
from hanse_privacy.accounting.plan import ReleasePlan, is_normal, rho_of
from hanse_privacy.accounting.several import normal_and_pure, rho_of_normal
from hanse_privacy.noise.gaussian import gaussian_epsilon
from planned_releases import BEFORE, DELTA, METRICS, ROUNDS, RUN, STEP, STEPS, epsilon, plan
from privacy_oracle import epsilon_of_mixed

SEVERAL = [
    [(STEP, 470), (METRICS, 10)],
    [(STEP, 470), (gaussian(20.0), 1), (METRICS, 10)],
    [(gaussian(0.6, 0.005), 3000), (ReleaseEvent("pure", 0.3), 5)],
    [(gaussian(8.0), 10), (ReleaseEvent("pure", 0.1), 20)],
    [(gaussian(3.0), 1), (ReleaseEvent("pure", 1.0), 2)],
    [(laplace(20.0), 50), (ReleaseEvent("pure", 0.05), 50)],
    [(ReleaseEvent("pure", 0.02), 100), (ReleaseEvent("pure", 0.3), 4)],
]


@pytest.mark.parametrize("releases", SEVERAL, ids=[str(number) for number in range(len(SEVERAL))])
def test_all_of_a_plan_costs_at_most_one_percent_more_than_its_true_epsilon_and_never_less(
    releases: list[tuple[ReleaseEvent, int]],
) -> None:
    for delta in (1e-3, 1e-5, 1e-8):
        true = epsilon_of_mixed([(event.kind, event.amount, event.rate, count) for event, count in releases], delta)
        assert true <= epsilon(*releases, plan=plan(*releases), delta=delta) <= 1.01 * true, delta
        assert epsilon(*releases, delta=delta) >= true, delta  # by the filter


def test_a_plan_costs_less_than_the_filter_told_of_it() -> None:
    assert epsilon(*RUN.releases, plan=RUN) < 0.75 * epsilon(*RUN.releases)


def test_all_of_one_kind_has_no_plan_nor_has_what_no_distribution_is_known_of() -> None:
    assert ReleasePlan.of([(gaussian(3.0), 10), (gaussian(5.0), 1), (ReleaseEvent("chance", 2.0**-64), 10)], 10) is None
    assert ReleasePlan.of([(STEP, 4), (STEP, 4)], 2) is None
    assert ReleasePlan.of([(ReleaseEvent("concentrated", 0.1), 1), (METRICS, 1)], 1) is None


def test_normal_noise_on_all_alone_adds_up_by_its_rho() -> None:
    events = (
        gaussian(2.0),
        gaussian(2.0, 0.5),
        laplace(2.0),
        ReleaseEvent("concentrated", 0.1),
        ReleaseEvent("chance", 0.1),
    )
    assert [(is_normal(event), rho_of(event)) for event in events] == [(True, 0.125), *[(False, 0.0)] * 4]


def test_a_plan_of_one_kind_is_made_where_it_is_asked_for_unless_no_distribution_is_known() -> None:
    alone = ReleasePlan.of([(STEP, 4), (STEP, 4)], 2, "said", always=True)
    assert alone == ReleasePlan(((STEP, 8),), 2)
    assert alone.note == "said"
    assert ReleasePlan.of([(ReleaseEvent("concentrated", 0.1), 1)], 1, always=True) is None


def test_plans_are_the_same_whatever_is_noted_and_in_whichever_order_the_kinds_are_said() -> None:
    said = [(STEP, 470), (laplace(9.0), 2), (BEFORE, 1), (METRICS, 10), (gaussian(5.0), 3), (gaussian(1.1, 0.01), 5)]
    first = ReleasePlan.of(said, ROUNDS, "one")
    assert first is not None
    assert all(ReleasePlan.of(order, ROUNDS, "other") == first for order in itertools.permutations(said, len(said)))


def test_a_plan_is_of_one_round_to_a_thousand_million_with_one_release_or_more_of_each_kind() -> None:
    for rounds in (1, 10**9):
        assert ReleasePlan(((METRICS, 1),), rounds).rounds == rounds
    for rounds in (0, 10**9 + 1):
        with pytest.raises(HanseError, match=rf"plan\.rounds: {rounds} is not a whole number from 1 to 1000000000"):
            ReleasePlan(((METRICS, 1),), rounds)
    with pytest.raises(HanseError, match=r"plan\.releases\.count: 0 is not 1 or more"):
        ReleasePlan(((METRICS, 1), (STEP, 0)), 1)
    with pytest.raises(HanseError, match=r"plan\.releases: 2 is not each event once"):
        ReleasePlan(((METRICS, 1), (METRICS, 2)), 1)
    assert ReleasePlan((), 1).reached({METRICS: 1}) is None


@pytest.mark.parametrize("done", range(1, 26))
def test_normal_noise_is_charged_by_the_least_rounds_that_hold_it_within_the_plan_and_beyond(done: int) -> None:
    asked = plan((gaussian(4.0), 10), (METRICS, 10))
    assert dict(asked.reached({gaussian(4.0): done}) or ()) == {gaussian(4.0): done, METRICS: done}
    assert dict(asked.reached({gaussian(2.0): done}) or ()) == {gaussian(4.0): 4 * done, METRICS: 4 * done}
    assert dict(asked.reached({METRICS: 7, gaussian(4.0): done}) or ()) == {
        gaussian(4.0): max(7, done), METRICS: max(7, done),
    }  # fmt: skip


@given(
    st.integers(1, 30), st.integers(1, 40), st.integers(1, 12),
    st.lists(st.sampled_from(["step", "before", "metrics", "other normal"]), min_size=1, max_size=60),
)  # fmt: skip
@settings(deadline=None, max_examples=200)
def test_what_a_plan_charges_holds_all_that_was_released_and_only_ever_grows(
    rounds: int, steps: int, every: int, asked: list[str]
) -> None:
    kinds = {"step": STEP, "before": BEFORE, "metrics": METRICS, "other normal": gaussian(9.0)}
    made = plan((STEP, rounds * steps), (BEFORE, 1), (METRICS, -(-rounds // every)), rounds=rounds)
    done: dict[ReleaseEvent, int] = {}
    before: dict[ReleaseEvent, int] = {}
    for name in asked:
        done[kinds[name]] = done.get(kinds[name], 0) + (steps if name == "step" else 1)
        reached = made.reached(done)
        assert reached is not None
        amounts = dict(reached)
        assert all(amounts[event] >= count for event, count in done.items() if not is_normal(event))
        needed = math.fsum(rho_of(event) * count for event, count in done.items())
        assert math.fsum(rho_of(event) * count for event, count in reached) >= needed * (1 - 1e-11)
        assert all(amounts[event] >= count for event, count in before.items())  # a row, in which each holds the last
        before = amounts


def test_a_run_in_its_order_is_charged_round_by_round_and_in_the_end_for_its_plan() -> None:
    done = {BEFORE: 1}
    for number in range(1, ROUNDS + 1):
        done |= {STEP: number * STEPS, METRICS: number}
        assert RUN.reached(done) == plan((STEP, number * STEPS), (BEFORE, 1), (METRICS, number)).releases
    more = RUN.reached(done | {STEP: (ROUNDS + 1) * STEPS})
    assert more is not None
    assert dict(more) == {STEP: (ROUNDS + 1) * STEPS, METRICS: ROUNDS + 1, BEFORE: 2}
    assert RUN.reached(done | {laplace(1.0): 1}) is None
    assert plan((STEP, 10), (METRICS, 1)).reached({gaussian(4.0): 1}) is None  # the plan has no normal noise on all


def test_a_run_that_stops_early_is_charged_for_what_it_did() -> None:
    half = [(STEP, ROUNDS // 2 * STEPS), (BEFORE, 1), (METRICS, ROUNDS // 2)]
    true = epsilon_of_mixed([(event.kind, event.amount, event.rate, count) for event, count in half], DELTA)
    assert true <= epsilon(*half, plan=RUN) <= 1.01 * true


def test_beyond_a_plan_the_filter_has_its_own_share_of_delta() -> None:
    beyond = (*RUN.releases, (laplace(50.0), 1))
    assert epsilon(*beyond, plan=RUN) == epsilon(*beyond)
    many = ((METRICS, 500), (STEP, 1))  # of which a plan's row would have 500 rounds of training
    assert epsilon(*many, plan=RUN) == epsilon(*many)


def test_no_chances_of_a_plan_are_forgotten() -> None:
    chance = ReleaseEvent("chance", 4e-6)
    asked = plan((gaussian(5.0), 2), (METRICS, 2), (chance, 2), rounds=2)
    with_chances = epsilon((gaussian(5.0), 2), (METRICS, 2), (chance, 2), plan=asked)
    without = epsilon((gaussian(5.0), 2), (METRICS, 2), plan=plan((gaussian(5.0), 2), (METRICS, 2), rounds=2))
    assert with_chances > without
    assert epsilon((gaussian(5.0), 3), (METRICS, 3), (chance, 3), plan=asked) == math.inf


@given(st.floats(0.01, 3.0), st.integers(1, 60), st.floats(0.01, 1.0), st.sampled_from([1e-3, 1e-5, 1e-9]))
@settings(deadline=None, max_examples=30)
def test_normal_noise_beside_others_costs_between_itself_and_their_sum(
    each: float, count: int, rho: float, delta: float
) -> None:
    alone = gaussian_epsilon(1 / math.sqrt(2 * rho), delta)
    both = normal_and_pure(rho, {each: count}, delta)
    assert alone * (1 - 1e-9) <= both <= (alone + each * count) * (1 + 1e-6)
    assert normal_and_pure(rho, {}, delta) == pytest.approx(alone, rel=1e-6)
    assert normal_and_pure(rho_of_normal(2.0, delta), {each: count}, delta) >= 2.0 * (1 - 1e-6)


@given(
    st.lists(
        st.tuples(st.sampled_from([0.1, 0.3, 0.7, 1.5]), st.integers(1, 4)),
        min_size=1,
        max_size=3,
        unique_by=lambda one: one[0],
    ),
    st.floats(0.0, 2.0),
)
@settings(deadline=None, max_examples=30)
def test_nobody_who_chooses_the_order_and_when_to_stop_by_the_answers_learns_more_than_all_of_a_plan_tells(
    pure: list[tuple[float, int]], at: float
) -> None:
    """The best that anybody can do, by all ways to go on from each row of answers."""
    epsilons = [each for each, _ in pure]

    @cache
    def best(left: tuple[int, ...], ups: tuple[int, ...]) -> float:
        loss = math.fsum(number * each for number, each in zip(ups, epsilons, strict=True))
        found = max(0.0, -math.expm1(at - loss))  # stopping here
        for one, each in enumerate(epsilons):
            if not left[one]:
                continue
            fewer = tuple(count - (number == one) for number, count in enumerate(left))
            likely = 1 / (1 + math.exp(-each))
            up, down = (tuple(count + sign * (number == one) for number, count in enumerate(ups)) for sign in (1, -1))
            found = max(found, likely * best(fewer, up) + (1 - likely) * best(fewer, down))
        return found

    delta = best(tuple(count for _, count in pure), (0,) * len(pure))
    assume(delta > 1e-6)
    assert normal_and_pure(0.0, dict(pure), delta) == pytest.approx(at, rel=1e-5, abs=1e-5)


def test_what_is_too_much_to_look_at_or_has_no_delta_is_told_as_such() -> None:
    assert normal_and_pure(0.1, {0.1: 10**6}, DELTA) == math.inf
    assert normal_and_pure(0.1, {0.1: 1}, 0.0) == math.inf
    million = [(ReleaseEvent("pure", 1e-5), 10**6), (METRICS, 3)]
    assert 0.05 < epsilon(*million, plan=plan(*million)) <= 10.15


@pytest.mark.parametrize(
    "body",
    [
        {}, {"releases": [], "rounds": 0, "note": ""},
        {"releases": [{"event": {}, "count": 1}], "rounds": 1, "note": ""},
        {"releases": [{"event": STEP.to_json(), "count": 0}], "rounds": 1, "note": ""},
        {"releases": [{"event": STEP.to_json(), "count": 1}] * 2, "rounds": 1, "note": ""},
    ],
)  # fmt: skip
def test_a_plan_that_is_none_is_refused(body: dict[str, object]) -> None:
    with pytest.raises(HanseError, match=r"plan|event"):
        ReleasePlan.from_json(body)
    assert ReleasePlan.from_json(RUN.to_json()) == RUN


def test_the_share_of_delta_is_that_of_releases_that_are_alike() -> None:
    releases = [(gaussian(8.0), 10), (ReleaseEvent("pure", 0.1), 20)]
    told = normal_and_pure(10 * 0.5 / 64, {0.1: 20}, delta_of_alike(DELTA))
    assert epsilon(*releases, plan=plan(*releases)) == pytest.approx(told, rel=1e-6)
