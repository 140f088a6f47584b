"""Samplers and mechanisms against their distributions. Seeds are fixed: what is random here is the same each time."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hanse_fabric.errors import HanseError
from hanse_privacy.noise.distributed import whole_steps
from hanse_privacy.noise.exact import discrete_gaussian, discrete_laplace
from hanse_privacy.noise.gaussian import concentrated_epsilon, concentrated_rho, gaussian_delta, gaussian_epsilon
from hanse_privacy.noise.mechanisms import Gaussian, Laplace, Mechanism, add, clip_left
from hanse_privacy.noise.polya import polya_difference
from hanse_privacy.noise.source import NoiseSource
from hanse_privacy.noise.staircase import Staircase
from known_noise import source

N = 20_000


def sample(mechanism: Mechanism, count: int, draws: NoiseSource) -> np.ndarray:
    return mechanism.sample_steps(count, draws) * mechanism.step


def fits(drawn: np.ndarray, probabilities: dict[int, float]) -> float:
    """p of a chi-square test of integers against probabilities; all other values are one more class."""
    counts = [int((drawn == value).sum()) for value in probabilities]
    expected = [drawn.size * probability for probability in probabilities.values()]
    rest = drawn.size - sum(expected)
    return float(stats.chisquare([*counts, drawn.size - sum(counts)], [*expected, rest]).pvalue)


def test_two_noise_sources_differ_and_one_with_a_given_seed_repeats_itself() -> None:
    assert not np.array_equal(NoiseSource().words(8), NoiseSource().words(8))
    assert np.array_equal(source(1).words(8), source(1).words(8))
    with pytest.raises(HanseError, match="16 bytes, expected 32"):
        NoiseSource(bytes(16))


def test_a_noise_source_gives_no_word_twice() -> None:
    one = source()
    words = np.concatenate([one.words(n) for n in (5, 8192, 3, 8190, 9000, 1)])
    assert np.unique(words).size == words.size


@given(bound=st.integers(1, 2**63), seed=st.integers(0, 2**64))
@settings(max_examples=50, deadline=None)
def test_draws_below_a_bound_are_below_it(bound: int, seed: int) -> None:
    drawn = source(seed).below(bound, 100)
    assert int(drawn.max()) < bound


@pytest.mark.parametrize("bound", [2, 3, 10, 64])
def test_draws_below_a_bound_are_even(bound: int) -> None:
    drawn = source().below(bound, N)
    assert stats.chisquare(np.bincount(drawn.astype(int), minlength=bound)).pvalue > 0.001


@pytest.mark.parametrize("scale", [1, 2, 7])
def test_discrete_laplace_has_its_probabilities(scale: int) -> None:
    q = math.exp(-1 / scale)
    exact = {k: (1 - q) / (1 + q) * q ** abs(k) for k in range(-2 * scale, 2 * scale + 1)}
    assert fits(discrete_laplace(scale, N, source(scale)), exact) > 0.001


@pytest.mark.parametrize("sigma", [1, 2, 7])
def test_discrete_gaussian_has_its_probabilities(sigma: int) -> None:
    total = sum(math.exp(-k * k / (2 * sigma**2)) for k in range(-20 * sigma, 20 * sigma + 1))
    exact = {k: math.exp(-k * k / (2 * sigma**2)) / total for k in range(-2 * sigma, 2 * sigma + 1)}
    assert fits(discrete_gaussian(sigma, N, source(sigma)), exact) > 0.001


@pytest.mark.parametrize(("scale", "parts"), [(1, 2), (2, 3), (5, 2), (3, 40)])
def test_a_share_is_the_difference_of_two_polya_variables(scale: int, parts: int) -> None:
    law = stats.nbinom(1 / parts, 1 - math.exp(-1 / scale))
    weights = law.pmf(np.arange(400 * scale))
    exact = {k: float(weights[abs(k) :] @ weights[: weights.size - abs(k)]) for k in range(-3, 4)}
    assert fits(polya_difference(scale, parts, N, source(scale)), exact) > 0.001


@pytest.mark.parametrize("parts", [1, 2, 10, 100])
@pytest.mark.parametrize("scale", [3, 2**20])
def test_shares_sum_to_the_whole_laplace(parts: int, scale: int) -> None:
    one = source(parts)
    total = np.sum([polya_difference(scale, parts, N, one) for _ in range(parts)], axis=0)
    if scale == 3:
        q = math.exp(-1 / 3)
        assert fits(total, {k: (1 - q) / (1 + q) * q ** abs(k) for k in range(-6, 7)}) > 0.001
    else:
        assert stats.kstest(total / scale, "laplace").pvalue > 0.01


def test_large_gaussian_scales_are_gaussian() -> None:
    assert stats.kstest(discrete_gaussian(2**40, N, source()) / 2**40, "norm").pvalue > 0.01


@pytest.mark.parametrize("scale", [0, 2**50 + 1])
def test_scales_that_round_noise_to_zero_or_overflow_are_refused(scale: int) -> None:
    for draw in (lambda: discrete_laplace(scale, 1, source()), lambda: polya_difference(scale, 2, 1, source())):
        with pytest.raises(HanseError, match="steps of the grid"):
            draw()


def test_laplace_and_gaussian_are_what_they_are_called() -> None:
    assert stats.kstest(sample(Laplace(4.0), N, source(2)), "laplace", (0, 4.0)).pvalue > 0.01
    assert stats.kstest(sample(Gaussian(3.0), N, source()), "norm", (0, 3.0)).pvalue > 0.01


@pytest.mark.parametrize(("ratio", "epsilon"), [(7.0318, 0.5), (3.7306, 1.0), (0.4999, 10.0)])
def test_the_epsilon_of_gaussian_noise_has_the_published_values(ratio: float, epsilon: float) -> None:
    # The classical formula asks for 9.69 and 4.84; the analytic one (Balle and Wang, 2018) holds above 1 too.
    assert gaussian_epsilon(ratio, 1e-5) == pytest.approx(epsilon, rel=1e-3)


@given(ratio=st.floats(0.05, 100), log_delta=st.floats(-30, -1))
@settings(max_examples=50, deadline=None)
def test_an_epsilon_spends_delta_and_no_more(ratio: float, log_delta: float) -> None:
    delta = math.exp(log_delta)
    epsilon = gaussian_epsilon(ratio, delta)
    spent = gaussian_delta(ratio, epsilon)
    assert spent <= delta
    assert spent >= delta * (1 - 1e-4) or epsilon == 0.0


def test_concentrated_epsilon_is_never_below_the_exact_one() -> None:
    for ratio in (0.2, 1.0, 5.0):
        assert concentrated_epsilon(1 / (2 * ratio**2), 1e-5) >= gaussian_epsilon(ratio, 1e-5)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 30.0])
def test_the_rho_for_an_epsilon_is_the_largest_that_keeps_it(epsilon: float) -> None:
    rho = concentrated_rho(epsilon, 1e-5)
    assert concentrated_epsilon(rho, 1e-5) <= epsilon < concentrated_epsilon(rho * (1 + 1e-9), 1e-5)


@pytest.mark.parametrize(("epsilon", "expected"), [(0.1, 9.996), (1, 0.960), (4, 0.138), (8, 0.0183)])
def test_the_staircase_has_its_expected_size(epsilon: float, expected: float) -> None:
    mechanism = Staircase(1.0, epsilon)
    least = math.exp(epsilon / 2) / math.expm1(epsilon)  # E|X| at the best width of the steps
    assert least == pytest.approx(expected, rel=0.005)
    count = 2_000_000 if epsilon == 8 else 400_000  # at epsilon 8 the lower step is rare
    assert np.abs(sample(mechanism, count, source(1))).mean() == pytest.approx(least, rel=0.01)


@pytest.mark.parametrize("epsilon", [1.0, 4.0, 8.0])
def test_the_staircase_is_smaller_than_laplace(epsilon: float) -> None:
    mechanism = Staircase(1.0, epsilon)
    drawn = np.abs(sample(mechanism, 100_000, source()))
    assert drawn.mean() < 1.0 / epsilon


def test_a_histogram_of_the_staircase_is_private() -> None:
    drawn = sample(Staircase(1.0, 1.0), 400_000, source())
    cells = np.arange(-3, 3.01, 0.25)
    here, there = np.histogram(drawn, cells)[0], np.histogram(drawn + 1.0, cells)[0]
    assert np.abs(np.log(here / there)).max() < 1.0 + 0.05


@pytest.mark.parametrize("mechanism", [Laplace(0.5), Gaussian(2.0), Staircase(1.0, 2.0)])
def test_noisy_values_lie_on_a_grid(mechanism: Mechanism) -> None:
    values = np.linspace(-1, 1, 2000).reshape(20, 100)
    noisy = add(values, mechanism, source())
    assert noisy.shape == values.shape
    assert np.allclose(noisy / mechanism.step, np.rint(noisy / mechanism.step), rtol=2**-52, atol=0)
    assert abs((noisy - values).mean()) < 5 * (noisy - values).std() / math.sqrt(values.size)


def given_away(noisy: Callable[[float, int], np.ndarray], step: float) -> np.ndarray:
    """Of which noisy values their last bits say that 0 is hidden, and not 1 (Mironov 2012): a float near 0 is finer
    than any sum of 1 and a float, and on a grid no value that is off it is any sum at all."""
    grid = max(step, 2.0**-53)
    zeros, ones = noisy(0.0, 100_000), noisy(1.0, 100_000)
    assert np.array_equal(np.rint(ones / grid) * grid, ones)
    return np.rint(zeros / grid) * grid != zeros


@pytest.mark.parametrize("mechanism", [Laplace(1.0), Gaussian(1.0)])
def test_the_last_bits_of_a_noisy_value_do_not_tell_what_it_hides(mechanism: Mechanism) -> None:
    one = source()
    assert not given_away(lambda value, count: add(np.full(count, value), mechanism, one), mechanism.step).any()


@pytest.mark.parametrize("law", ["laplace", "normal"])
def test_control_the_last_bits_of_noise_that_is_added_as_floats_tell_it_for_certain(law: str) -> None:
    drawn = getattr(np.random.default_rng(1), law)
    assert given_away(lambda value, count: value + drawn(size=count), 0.0).mean() > 0.1


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0])
def test_scales_that_are_not_positive_numbers_are_refused(bad: float) -> None:
    for make in (lambda: Laplace(bad), lambda: Gaussian(bad), lambda: Staircase(bad, 1.0)):
        with pytest.raises(HanseError, match="expected a finite number above 0"):
            make()


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e300])
def test_values_that_have_no_place_on_the_grid_are_refused(bad: float) -> None:
    with pytest.raises(HanseError, match="not finite"):
        add(np.array([0.0, bad]), Laplace(1.0), source())


def test_noise_on_a_ring_is_rounded_up_to_whole_steps_and_refused_below_one() -> None:
    step = 2.0**-20
    assert whole_steps(0.5, step) == 1 << 19
    assert whole_steps(1.5 * step, step) == 2
    with pytest.raises(HanseError, match="on a grid of"):
        whole_steps(step / 2, step)


@pytest.mark.parametrize("mechanism", [Gaussian(1e6), Laplace(1e9)])
def test_nothing_is_left_of_a_clip_below_the_noises_grid(mechanism: Gaussian | Laplace) -> None:
    """A clip below zero would be none: vectors would be turned, and as long as the grid is coarse."""
    assert clip_left(1.0, mechanism, 4) == 1.0 - mechanism.widened(4)
    assert clip_left(1.0, mechanism, 10_000_000) == 0.0
