"""The laws of what is drawn, worked out exactly from the tables and held against their formulas to 45 digits."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hanse_privacy.noise import exact, weights
from hanse_privacy.noise.exact import DISTANCE, discrete_gaussian, discrete_laplace, floored_laplace, geometric
from hanse_privacy.noise.polya import polya_difference
from hanse_privacy.noise.tables import NoiseTable
from known_noise import Told, source

UNITS = 1 << 160
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494")


@given(st.lists(st.integers(0, 2**200), min_size=1, max_size=40).filter(any))
@settings(max_examples=50, deadline=None)
def test_a_table_has_the_probabilities_of_its_weights(weights: list[int]) -> None:
    law = NoiseTable(weights).law()
    assert sum(law) == UNITS
    assert all(abs(Fraction(have, UNITS) - Fraction(want, sum(weights))) <= Fraction(len(weights), UNITS)
               for have, want in zip(law, weights, strict=False))  # fmt: skip


def test_a_draw_that_the_first_word_leaves_open_is_decided_by_further_bits() -> None:
    # Of four slots the last is nobody's own: its threshold is zero. The first three are shared with another each.
    table = NoiseTable([5, 3, 3])
    slot = 1
    threshold = int(table._packed[slot]) >> 2 << 128 | int(table._tails[slot][0]) << 64 | int(table._tails[slot][1])
    head, tail = threshold >> 128, threshold & (1 << 128) - 1
    assert head > 0
    assert 0 < tail < (1 << 128) - 1
    drawn = [
        int(table.draw(1, Told(slot << 30 | head, more >> 64, more & (1 << 64) - 1))[0]) for more in (tail - 1, tail)
    ]
    assert drawn[0] == slot != drawn[1]
    assert [int(table.draw(1, Told(slot << 30 | head + by))[0]) for by in (-1, 1)] == drawn


def gaussian_probability(digits: tuple[exact._Digit, ...], x: int) -> Fraction:
    """P(X = x) for a number of two digits."""
    low, high = digits
    laws = [digit.table.law() for digit in digits]
    total = 0
    for index, weight in enumerate(laws[1]):
        other = x - (index - high.middle) * high.factor + low.middle
        if weight and 0 <= other < len(laws[0]):
            total += weight * laws[0][other]
    return Fraction(total, UNITS**2)


@pytest.mark.parametrize("sigma", [2400, 40_000])
def test_a_gaussian_number_of_two_digits_is_within_the_stated_distance_of_its_law(sigma: int) -> None:
    digits = exact._gaussian_digits(sigma)
    assert len(digits) == 2
    with localcontext(prec=60):
        whole = Decimal(sigma) * (2 * PI).sqrt()  # the sum of all weights, to exp(-2 pi^2 sigma^2)
        for x in (0, 1, -sigma, 2 * sigma + 1, -9 * sigma, 13 * sigma):
            made = gaussian_probability(digits, x)
            law = (-Decimal(x * x) / (2 * sigma * sigma)).exp() / whole
            # Relative to the law for the convolution; and what the tables' own rounding does to one value.
            assert abs(Decimal(made.numerator) / made.denominator - law) < law * Decimal(2) ** -145 + Decimal(2) ** -155


@pytest.mark.parametrize("scale", [3, 2**20])
def test_a_laplace_number_is_within_the_stated_distance_of_its_law(scale: int) -> None:
    coin = weights.exp_in_units(Fraction(-1, scale))
    top, *lower = exact._laplace_digits(Fraction(1, scale), coin)
    laws = [digit.table.law() for digit in (top, *lower)]
    with localcontext(prec=60):
        q = (-1 / Decimal(scale)).exp()
        for x in (0, 1, scale, 5 * scale + 7, -1, -scale, -60 * scale):
            value, made = (x if x >= 0 else -1 - x), 1
            for digit, law in zip(lower, laws[1:], strict=True):
                made *= law[value // digit.factor % len(law)]
            digit = value // top.factor
            made *= laws[0][top.middle + (digit if x >= 0 else -1 - digit)]
            law = (1 - q) / (1 + q) * q ** abs(x)
            assert abs(Decimal(made) / UNITS ** len(laws) - law) < law * Decimal(2) ** -120 + Decimal(2) ** -155


def test_the_stated_distance_has_room_for_what_is_left_out_of_tables() -> None:
    # Each digit: the ends (2 exp(-REACH^2/2), or exp(-102)), 2^16 probabilities rounded to 2^-160, and the smoothness.
    reach = 2 * math.exp(-(float(weights.REACH) ** 2) / 2) + math.exp(-weights.REACH_LAPLACE)
    rounded, smooth = 2.0**16 / UNITS, 4 * math.exp(-2 * math.pi**2 * float(exact.SMOOTH))
    digits = max(len(exact._gaussian_digits(2**50)), len(exact._laplace_digits(Fraction(1, 2**50), 1)))
    assert (digits + 1) * (reach + rounded + smooth) < DISTANCE


@pytest.mark.parametrize("sigma", [2**12, 2**30])
def test_wide_gaussian_numbers_fill_the_tails_the_middle_and_the_low_bits(sigma: int) -> None:
    drawn = discrete_gaussian(sigma, 1_000_000, source(1))
    edges = stats.norm.ppf(np.concatenate([[1e-5, 1e-4, 1e-3], np.linspace(0.01, 0.99, 99)])) * sigma
    counts = np.histogram(drawn + 0.5, np.concatenate([[-np.inf], edges, -edges[2::-1], [np.inf]]))[0]
    cells = np.diff(stats.norm.cdf(np.concatenate([[-np.inf], edges, -edges[2::-1], [np.inf]]) / sigma))
    assert stats.chisquare(counts, cells * drawn.size).pvalue > 0.001
    assert stats.chisquare(np.bincount(drawn & 255)).pvalue > 0.001


def test_floored_laplace_numbers_are_those_of_a_continuous_variable_rounded_down() -> None:
    drawn = floored_laplace(2, 100_000, source())
    cells = np.diff(stats.laplace(0, 2).cdf([-np.inf, *range(-6, 7), np.inf]))
    counts = np.histogram(drawn, [-np.inf, *range(-6, 7), np.inf])[0]
    assert stats.chisquare(counts, cells * drawn.size).pvalue > 0.001


def test_geometric_numbers_of_a_small_exponent_are_exponential() -> None:
    drawn = geometric(Fraction(1, 3_000_000_007), 50_000, source())
    assert stats.kstest(drawn / 3_000_000_007, "expon").pvalue > 0.001


def test_a_key_brings_the_same_noise_in_every_release() -> None:
    # A central sum that is redone after a crash is the same sum: no second draw of its noise (noise.source). Shares of
    # a Laplace variable (the last) are no central noise: a site draws them by a key that nobody keeps, and sends again
    # the bytes that it had sent. So they could change, when they came to be drawn at once.
    drawn = [
        discrete_gaussian(2**30, 4, source()).tolist(),
        discrete_laplace(2**20, 4, source()).tolist(),
        floored_laplace(2**40, 4, source()).tolist(),
        polya_difference(2**20, 3, 4, source()).tolist(),
    ]
    assert drawn == GOLDEN


GOLDEN = [
    [-533514404, -1108962746, 780096409, -1122001307],
    [-114403, 28237, -1719406, 8924],
    [-116991785867, 31917324598, -1803144262069, 9002912627],
    [-1742863, -187962, -1128453, -9360],
]
