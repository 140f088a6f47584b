"""Rounding under distributed noise: no sum of many sites is biased by it, and no norm grows beyond what is charged."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse_fabric.errors import HanseError
from hanse_fabric.messages.masking import RingPlan
from hanse_fabric.messages.privacy import Privacy, PrivacyTerms
from hanse_privacy.noise import site
from hanse_privacy.noise.mechanisms import Gaussian, Laplace, Mechanism, add
from hanse_privacy.noise.rounding import clip_before_rounding, conditional_seed, steps_from_nearest
from hanse_privacy.noise.source import NoiseSource
from hanse_privacy.ring.codec import uniforms
from hanse_privacy.ring.plan import make_plan
from hanse_schemas.secure_aggregation import SecureAggregation

SITES, COUNT, MEAN = 2000, 4096, 2.4e-6
NO_NOISE = np.zeros(COUNT, np.int64)


def plan() -> RingPlan:
    """Of 2,000 sites at 32 bits: steps of 2^-17, three times the mean of the coordinates."""
    return make_plan(SecureAggregation(mode="compensator"), participants=SITES, weighting="uniform")


def kept(values: np.ndarray) -> float:
    """Which share of the values' mean the sites' rounded updates keep, without any noise."""
    step, total = 2.0 ** -plan().default.fraction, 0.0
    for update in values:
        rounded = np.rint(update / step) + site.drawn_noise(NO_NOISE, plan())(update, 0)
        total += float(rounded.mean()) * step
    return total / len(values) / float(values.mean())


def drawn(sites: int) -> np.ndarray:
    """Updates of so many sites, of coordinates that are mostly below a step of the grid."""
    return np.random.default_rng(3).normal(MEAN, MEAN / 2, size=(sites, COUNT))


def test_coordinates_below_a_step_of_the_grid_are_kept_in_the_mean() -> None:
    values = drawn(200)
    # Each value is off by less than a step, whose standard deviation is below half of it.
    error = 0.5 * 2.0 ** -plan().default.fraction / math.sqrt(values.size) / MEAN
    assert abs(kept(values) - 1) < 6 * error < 0.02


def test_control_rounding_toward_zero_loses_nearly_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        site, "steps_from_nearest",
        lambda values, step, _: (np.trunc(values / step) - np.rint(values / step)).astype(np.int64),
    )  # fmt: skip
    assert kept(drawn(50)) < 0.05


@dataclass(frozen=True)
class Silent:
    """A mechanism whose noise is nothing, on the ring's grid."""

    step: float = 2.0 ** -plan().default.fraction

    def sample_steps(self, count: int, source: NoiseSource) -> np.ndarray:
        return np.zeros(count, np.int64)

    def widened(self, count: int) -> float:
        return 0.0


def kept_by_sites_of_their_own_noise(sites: int) -> float:
    """The same where each site adds noise of its own, of which there is none here."""
    source = NoiseSource(bytes(32))
    update = np.random.default_rng(3).normal(MEAN, MEAN / 2, size=COUNT)
    total = np.sum([add(update, Silent(), source) for _ in range(sites)], axis=0)
    return float(total.mean()) / sites / float(update.mean())


def test_noise_of_each_sites_own_keeps_the_mean_of_coordinates_below_a_step_at_2000_sites() -> None:
    error = 0.5 * Silent.step / math.sqrt(SITES * COUNT) / MEAN
    assert abs(kept_by_sites_of_their_own_noise(SITES) - 1) < 6 * error < 0.01


def test_control_of_each_sites_own_rounding_toward_zero_loses_nearly_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NoiseSource, "uniforms", lambda _, count: np.ones(count))  # of values above 0: never up
    assert kept_by_sites_of_their_own_noise(10) < 0.05


@pytest.mark.parametrize("mechanism", [Laplace(2.0), Gaussian(2.0)])
def test_noise_is_of_mean_zero_to_a_step_of_its_grid(mechanism: Mechanism) -> None:
    drawn = mechanism.sample_steps(1 << 20, NoiseSource(bytes(32)))
    assert abs(float(drawn.mean())) < 5 * float(drawn.std()) / math.sqrt(drawn.size)


@pytest.mark.parametrize(("mechanism", "order"), [("discrete_gaussian", 2), ("discrete_laplace", 1)])
def test_without_a_delta_a_rounded_update_is_within_the_clip_however_the_coins_fall(mechanism: str, order: int) -> None:
    parameters, step, clip = 1000, 2.0**-12, 8.0
    shorter = clip_before_rounding(clip, mechanism, parameters, step, always=True)
    assert shorter < clip_before_rounding(clip, mechanism, parameters, step)
    update = np.random.default_rng(1).normal(size=parameters)
    update *= shorter / np.linalg.norm(update, order)
    away = np.sign(update) * np.ceil(np.abs(update) / step) * step
    assert clip * 0.98 < np.linalg.norm(away, order) <= clip


@pytest.mark.parametrize(("mechanism", "order"), [("discrete_gaussian", 2), ("discrete_laplace", 1)])
@pytest.mark.parametrize("spread", [1, 100, 20_000])
def test_a_rounded_update_is_within_the_clip_that_is_charged(mechanism: str, order: int, spread: int) -> None:
    """At its full norm, in one coordinate, a hundred, or all: where rounding can lengthen it most."""
    parameters, step, clip = 20_000, 2.0**-12, 8.0
    shorter = clip_before_rounding(clip, mechanism, parameters, step)
    assert 0.5 * clip <= shorter < clip
    update = np.zeros(parameters)
    update[:spread] = np.random.default_rng(spread).normal(size=spread)
    update *= shorter / np.linalg.norm(update, order)
    for _ in range(20):
        rounded = (np.rint(update / step) + steps_from_nearest(update, step, uniforms())) * step
        assert np.abs(rounded - update).max() < step
        assert np.linalg.norm(rounded, order) <= clip


def longest(parameters: int, spread: int, step: float, clip: float) -> np.ndarray:
    """An update of all that may be left of a clip before conditional rounding."""
    update = np.zeros(parameters)
    update[:spread] = np.random.default_rng(spread).normal(size=spread)
    return update * clip_before_rounding(clip, "gaussian", parameters, step, again=True) / np.linalg.norm(update)


def rounded_by(seed: bytes | None, update: np.ndarray, step: float) -> np.ndarray:
    return (np.rint(update / step) + steps_from_nearest(update, step, uniforms(seed))) * step


@settings(max_examples=30, deadline=None)
@given(parameters=st.integers(1, 5000), share=st.floats(0.01, 1), bits=st.integers(6, 14), block=st.integers(1, 5000))
def test_conditional_rounding_is_within_the_clip_always(parameters: int, share: float, bits: int, block: int) -> None:
    step, clip = 2.0**-bits, 4.0
    update = longest(parameters, max(1, int(share * parameters)), step, clip)
    seed = conditional_seed(lambda: iter([update[at : at + block] for at in range(0, parameters, block)]), step, clip)
    assert np.linalg.norm(rounded_by(seed, update, step)) <= clip
    # It leaves more of the clip than rounding once does.
    assert np.linalg.norm(update) > clip_before_rounding(clip, "gaussian", parameters, step)


def test_it_rounds_again_seldom_enough_and_rounding_once_would_exceed_the_clip_sometimes() -> None:
    parameters, step, clip = 8, 2.0**-6, 1.0
    length = clip_before_rounding(clip, "gaussian", parameters, step, again=True)
    update = np.full(parameters, length / math.sqrt(parameters))
    norms = np.array([np.linalg.norm(rounded_by(None, update, step)) for _ in range(300)])
    assert 0 < np.mean(norms > clip) <= math.exp(-0.5) + 0.1


def test_the_bias_of_conditional_rounding_is_as_small_as_the_paper_says() -> None:
    parameters, step, clip, draws = 200, 2.0**-5, 1.0, 3000
    update = longest(parameters, parameters, step, clip)
    total = np.zeros(parameters)
    for _ in range(draws):
        total += rounded_by(conditional_seed(lambda: iter([update]), step, clip), update, step)
    beta, error = math.exp(-0.5), step * math.sqrt(parameters / draws)
    assert np.linalg.norm(total / draws - update) <= beta / (1 - beta) * step * math.sqrt(parameters) + 5 * error


def test_an_update_that_is_never_within_the_clip_is_refused() -> None:
    with pytest.raises(HanseError, match="never within 1"):
        conditional_seed(lambda: iter([np.full(10, 2.0)]), 2.0**-4, 1.0)


def test_a_grid_too_coarse_for_the_clip_is_refused() -> None:
    with pytest.raises(HanseError, match="too small for 1000000 parameters"):
        clip_before_rounding(1.0, "discrete_laplace", 1_000_000, 2.0**-10)
    with pytest.raises(HanseError, match=r"privacy\.clip"):
        clip_before_rounding(1e-3, "gaussian", 1_000_000, 2.0**-10)


def test_noise_of_another_number_of_parameters_is_refused() -> None:
    with pytest.raises(HanseError, match="noise"):
        site.drawn_noise(NO_NOISE, plan())(np.zeros(2), COUNT - 1)


def test_what_is_rounded_twice_differs_and_the_noise_is_added_as_it_was_drawn() -> None:
    terms = PrivacyTerms(
        privacy=Privacy(
            placement="distributed", mechanism="discrete_laplace", noise="local-laplace", noise_multiplier=1.0
        ),
        rounds=1, round=1, active=3,
    )  # fmt: skip
    ring = make_plan(SecureAggregation(mode="compensator"), participants=3, weighting="uniform", tail=100.0)
    adjust = site.site_noise(terms, "a", ring, Path())
    assert not np.array_equal(adjust(np.zeros(64), 0), adjust(np.zeros(64), 64))
    whole = np.arange(COUNT) % 7
    assert np.array_equal(site.drawn_noise(whole, plan())(np.zeros(COUNT), 0), whole)
