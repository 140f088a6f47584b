"""Noise of one vector of counts: how much, what it is charged as, and that shares sum to the whole of it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hanse_fabric.errors import HanseError
from hanse_fabric.messages.privacy import Privacy
from hanse_privacy.accounting.accountant import AccountantName, make_accountant
from hanse_privacy.noise.counts import Change, CountNoise, count_noise
from hanse_privacy.noise.source import NoiseSource

LOCAL = Privacy(placement="local", mechanism="dp_sgd", epsilon=3.0)
SHARED = Privacy(placement="distributed", mechanism="discrete_gaussian", epsilon=3.0)
GAMMA = Privacy(
    placement="distributed", mechanism="discrete_laplace", noise="distributed-gamma", epsilon=3.0, colluding=1
)
STEP = 1 << 24
CHANGE = Change(l1=12.0 * STEP, l2=math.sqrt(12.0) * STEP)
MANY = 20_000


def noise_in_sum(privacy: Privacy, active: int, **budget: float) -> np.ndarray:
    """Of the sum over sites, per step: (MANY,)."""
    zeros = np.zeros(MANY, np.int64)
    source = NoiseSource(bytes(range(32)))
    drawn = [count_noise(privacy, CHANGE, active=active, **budget).add(zeros, source) for _ in range(active)]
    return np.sum(drawn, axis=0) / STEP


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_what_is_charged_is_the_epsilon_that_was_asked_for_by_the_sites_own_accountant(
    accountant: AccountantName,
) -> None:
    noise = count_noise(LOCAL, CHANGE, active=3, epsilon=0.3, delta=1e-6, accountant=accountant)
    made = make_accountant(accountant)
    made.compose(noise.event)
    assert 0.299 < made.epsilon(1e-6) <= 0.3


def test_the_deviation_of_normal_noise_is_what_was_charged_times_the_change() -> None:
    drawn = noise_in_sum(LOCAL, 1, multiplier=5.0)
    assert np.std(drawn) == pytest.approx(5.0 * math.sqrt(12.0), rel=0.03)
    assert count_noise(LOCAL, CHANGE, active=1, multiplier=5.0).event.amount == 5.0


def test_shares_of_normal_noise_sum_to_the_whole_and_a_local_sites_is_whole() -> None:
    whole = 5.0 * math.sqrt(12.0)
    assert np.std(noise_in_sum(SHARED, 4, multiplier=5.0)) == pytest.approx(whole, rel=0.03)
    assert np.std(noise_in_sum(LOCAL, 4, multiplier=5.0)) == pytest.approx(2 * whole, rel=0.03)


def test_shares_of_laplace_noise_are_whole_without_those_who_collude() -> None:
    noise = count_noise(GAMMA, CHANGE, active=4, epsilon=0.5)
    assert (noise.event.kind, noise.event.amount) == ("pure", pytest.approx(0.5))
    assert noise.parts == 3
    drawn = noise_in_sum(GAMMA, 3, multiplier=24.0)  # two parts of three sites: more than a whole
    assert np.var(drawn) == pytest.approx(2 * (12.0 * 24.0) ** 2 * 3 / 2, rel=0.06)


def test_a_variance_that_is_told_is_the_one_that_is_drawn() -> None:
    for privacy in (LOCAL, SHARED, GAMMA):
        noise = count_noise(privacy, CHANGE, active=5, multiplier=3.0)
        drawn = noise.add(np.zeros(MANY, np.int64), NoiseSource(bytes(32)))
        assert np.var(drawn.astype(float)) == pytest.approx(noise.variance, rel=0.1)


def test_a_worker_draws_by_what_it_is_told_and_by_nothing_else() -> None:
    noise = count_noise(GAMMA, CHANGE, active=4, epsilon=0.5)
    assert CountNoise.from_json(noise.to_json()) == noise
    for wrong in ({"steps": 0}, {"parts": 0}, {"gaussian": 1}, {"event": None}):
        with pytest.raises(HanseError):
            CountNoise.from_json(noise.to_json() | wrong)
    with pytest.raises(HanseError, match="noise"):
        CountNoise.from_json({"gaussian": True})


def test_each_draw_is_another() -> None:
    noise, zeros = count_noise(LOCAL, CHANGE, active=1, multiplier=1.0), np.zeros(8, np.int64)
    assert not np.array_equal(noise.add(zeros), noise.add(zeros))


@pytest.mark.parametrize(
    ("privacy", "budget", "said"),
    [
        (Privacy(placement="central", mechanism="gaussian", epsilon=1.0), {"epsilon": 1.0}, "privacy.placement"),
        (
            Privacy(placement="distributed", mechanism="laplace", noise="oblivious", epsilon=1.0),
            {"epsilon": 1.0}, "privacy.noise",
        ),
        (LOCAL, {}, "epsilon of counts"),
        (LOCAL, {"epsilon": 1.0, "delta": 1e-6, "multiplier": 2.0}, "epsilon of counts"),
        (LOCAL, {"epsilon": 1.0, "delta": 0.0}, "delta"),
    ],
)  # fmt: skip
def test_what_has_no_noise_of_this_kind_is_refused(privacy: Privacy, budget: dict[str, float], said: str) -> None:
    with pytest.raises(HanseError, match=said):
        count_noise(privacy, CHANGE, active=4, **budget)


@pytest.mark.parametrize("multiplier", [1e-12, 1e12])
def test_noise_that_rounds_to_nothing_or_overflows_is_refused(multiplier: float) -> None:
    with pytest.raises(HanseError, match="steps"):
        count_noise(LOCAL, Change(1.0, 1.0), active=1, multiplier=multiplier * (1 << 20))
    with pytest.raises(HanseError, match="change"):
        Change(0.0, 1.0)
