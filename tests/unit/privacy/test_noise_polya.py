"""Shares of a discrete Laplace: the laws of what is drawn, worked out from tables and coins to 40 digits, and drawn."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hanse_privacy.noise import polya
from hanse_privacy.noise.exact import DISTANCE, LARGEST_SCALE
from hanse_privacy.noise.polya import keeps_exactly, polya_difference
from hanse_privacy.noise.polya_weights import SMALL, polya_weights, ratio_in_units
from hanse_privacy.noise.tables import NoiseTable
from hanse_privacy.noise.weights import REACH_LAPLACE, UNIT_BITS
from known_noise import Told, source

N = 200_000
COIN = 208


def weight(k: int, scale: int, parts: int) -> mpmath.mpf:
    """By mpmath's gamma function: q^k Gamma(k + r)/(Gamma(r) k!)."""
    r = mpmath.mpf(1) / parts
    return mpmath.exp(mpmath.loggamma(k + r) - mpmath.loggamma(k + 1) - mpmath.loggamma(r) - mpmath.mpf(k) / scale)


@pytest.mark.parametrize("parts", [2, 3, 10, 5000])
@pytest.mark.parametrize("scale", [1, 7, 1000, 2**30 + 7, 2**50])
def test_weights_are_those_of_the_gamma_function(scale: int, parts: int) -> None:
    reach = REACH_LAPLACE * scale
    points = sorted({0, 1, 2, SMALL - 1, SMALL, SMALL + 1, 1000, scale // 3, scale, 5 * scale + 1, reach})
    with mpmath.workprec(420):
        for k, made in zip(points, polya_weights(points, scale, parts), strict=True):
            expected = weight(k, scale, parts) * 2**UNIT_BITS
            assert abs(made - expected) <= expected * mpmath.mpf(2) ** -170 + 1


@given(st.integers(SMALL, 2**57), st.integers(0, 2**50), st.integers(0, 50), st.integers(2, 10_000))
@settings(max_examples=60, deadline=None)
def test_a_coins_chance_is_the_ratio_of_weights_and_floats_are_as_near_as_is_said(
    start: int, more: int, bits: int, parts: int
) -> None:
    scale = 1 << bits
    start = min(start, REACH_LAPLACE * scale + SMALL)
    point = start + more % max(2, min(start >> 7, scale >> 5))
    with mpmath.workprec(420):
        expected = weight(point, scale, parts) / weight(start, scale, parts)
        made = mpmath.mpf(ratio_in_units(point, start, scale, parts, COIN)) / 2**COIN
        assert abs(made - expected) < mpmath.mpf(2) ** -170
    points, starts = np.array([[point], [start]])
    chance = float(polya._chances(polya._Polya(scale, parts, NoiseTable([1]), starts, starts, True), points, starts)[0])
    assert -(2.0**-48) < float(expected) - chance < 2.0**-21


@pytest.mark.parametrize(("scale", "parts"), [(3, 2), (64, 3), (67, 40)])
def test_a_polya_variable_is_within_the_stated_distance_of_its_law(scale: int, parts: int) -> None:
    law = polya._law(scale, parts)
    units = law.cells.law()
    assert law.wide == (scale > 3)
    assert sum(units[law.starts.size :]) == 0
    with mpmath.workprec(420):
        r, made = mpmath.mpf(1) / parts, {}
        for unit, start, within in zip(units, law.starts.tolist(), law.within.tolist(), strict=False):
            for k in range(start, start + within + 1):
                ratio = ratio_in_units(k, start, scale, parts, COIN) if k > start else 1 << COIN
                made[k] = mpmath.mpf(unit) * ratio / (within + 1)
        kept = sum(made.values())
        whole = (1 - mpmath.exp(-mpmath.mpf(1) / scale)) ** r  # times w(k): negative binomial probabilities
        expected, ratio = {}, mpmath.exp(-mpmath.mpf(1) / scale)
        for k in made:
            expected[k] = expected[k - 1] * ratio * (k - 1 + r) / k if k else whole
        beyond = 1 - sum(expected.values())
        assert 0 < beyond < mpmath.exp(-REACH_LAPLACE)
        apart = sum(abs(made[k] / kept - expected[k]) for k in made) + beyond
        assert apart / 2 < 2.0**-144


@pytest.mark.parametrize("scale", [1, 63, 64, 2**20 + 7, LARGEST_SCALE - 1, LARGEST_SCALE])
def test_cells_and_the_stated_distance_have_the_room_that_is_counted_on(scale: int) -> None:
    law = polya._law(scale, 2)
    assert law.starts.size <= 1 << 14
    assert law.starts[0] == 0
    assert np.array_equal(law.starts[1:], (law.starts + law.within + 1)[:-1])
    assert law.starts[-1] + law.within[-1] >= REACH_LAPLACE * scale
    assert law.within.max() < 1 << 45 <= 1 << 64 - polya._COIN
    for at in [*np.flatnonzero(law.within)[:: 1 + law.starts.size // 40].tolist(), law.starts.size - 1]:
        start, within = int(law.starts[at]), int(law.within[at])
        if within:  # the last of a cell has the smallest ratio
            assert start >= SMALL
            assert ratio_in_units(start + within, start, scale, 2, polya._COIN) >= polya._LEAST
    kept = polya._LEAST / 2**polya._COIN
    proposed = 2.0**14 / 2.0**160 + 2 * 2.0**-170
    assert 2 * (2 * proposed / kept + math.exp(-REACH_LAPLACE)) < 2.0**-143 < DISTANCE


def test_a_coin_that_floats_leave_open_is_decided_exactly() -> None:
    point, start, scale, parts = 1030, 1024, 700, 3
    chance = ratio_in_units(point, start, scale, parts, COIN)
    digits, further = chance >> 128, chance & (1 << 128) - 1
    low, high = further & (1 << 64) - 1, further >> 64
    assert keeps_exactly(point, start, scale, parts, digits, Told(low - 1, high))
    assert not keeps_exactly(point, start, scale, parts, digits, Told(low, high))
    # From the first bits on, which a word brings.
    law, (points, starts) = polya._law(scale, parts), np.array([[point], [start]])
    coin, more = np.array([digits >> 64], dtype=np.uint64), digits & (1 << 64) - 1
    assert polya._keeps(law, points, starts, coin, Told(more, low - 1, high)).tolist() == [True]
    assert polya._keeps(law, points, starts, coin, Told(more, low, high)).tolist() == [False]
    # And what floats decide, a little further off than that, is as exact.
    apart = int(1.01 * polya._CERTAIN * 2**80)
    for by in (-apart, apart):
        first, then = divmod(digits + by, 1 << 64)
        kept = polya._keeps(law, points, starts, np.array([first], dtype=np.uint64), Told(then))
        assert kept.tolist() == [by < 0]


def test_a_cells_first_number_is_kept_whatever_the_coin() -> None:
    law, at = polya._law(700, 3), np.array([0, 100, 1024])
    ones = (1 << 64) - 1
    assert polya._keeps(law, at, at, np.array([ones >> 48] * 3, dtype=np.uint64), Told(ones, ones, ones)).all()


def test_numbers_are_lost_in_both_halves_of_cells_as_often_as_the_law_has_fewer_than_are_proposed() -> None:
    scale, parts, count = 2**12, 2, 4_000_000
    law = polya._law(scale, parts)
    points, lost = polya._propose(law, count, source(1))
    wide = law.within > 0
    starts, halves = law.starts[wide], (law.within[wide] + 1) // 2
    whole = stats.nbinom(1 / parts, -math.expm1(-1 / scale))
    firsts = whole.pmf(starts) * halves
    proposed = whole.pmf(law.starts) @ (law.within + 1)
    at = np.searchsorted(law.starts, points[lost], side="right") - 1
    beyond = points[lost] - law.starts[at] >= (law.within[at] + 1) // 2
    for half in (0, 1):
        kept = whole.cdf(starts + (half + 1) * halves - 1) - whole.cdf(starts + half * halves - 1)
        expected = count * float((firsts - kept).sum()) / proposed
        assert expected > 1000
        assert abs(int((beyond == half).sum()) - expected) < 4 * math.sqrt(expected)


@pytest.mark.parametrize(("scale", "parts"), [(2**9, 2), (2**12, 3), (2**12, 10), (2**9, 1000)])
def test_shares_of_middling_scales_have_the_law_of_polya_variables(scale: int, parts: int) -> None:
    drawn = polya._draw(polya._law(scale, parts), N, source(parts))
    edges = np.unique([0, 1, 2, 5, 30, 255, 256, 300, *(scale * part // 10 for part in (3, 5, 10, 20, 30, 40))])
    cells = np.diff(stats.nbinom(1 / parts, -math.expm1(-1 / scale)).cdf([-1, *edges, np.inf]))
    counts = np.histogram(drawn, [-0.5, *(edges + 0.5), np.inf])[0]
    often = cells * N > 5
    expected = cells[often] / cells[often].sum() * counts[often].sum()
    assert stats.chisquare(counts[often], expected).pvalue > 0.001


@pytest.mark.parametrize(("scale", "parts"), [(2**30 + 7, 3), (2**40, 3), (2**50, 2)])
def test_shares_of_large_scales_are_those_of_a_gamma_law_down_to_the_low_bits(scale: int, parts: int) -> None:
    drawn = polya._draw(polya._law(scale, parts), N, source(parts))
    assert stats.kstest(drawn / scale, stats.gamma(1 / parts).cdf).pvalue > 0.001
    large = drawn[drawn > 2**16]
    assert stats.chisquare(np.bincount(large & 255, minlength=256)).pvalue > 0.001
    share = polya_difference(scale, parts, N, source(7)) / scale
    # Of a Laplace variable of scale 1: cumulants of 2 and 12, of which a share has 1/parts.
    variance = 2 / parts
    fourth = 12 / parts + 3 * variance**2
    assert abs(share.mean()) < 5 * math.sqrt(variance / N)
    assert abs((share**2).mean() - variance) < 5 * math.sqrt((fourth - variance**2) / N)


@pytest.mark.parametrize(("scale", "parts"), [(100, 2), (2**9, 3), (2**12, 7)])
def test_shares_sum_to_a_whole_laplace_with_its_probabilities(scale: int, parts: int) -> None:
    one = source(scale)
    total = np.sum([polya_difference(scale, parts, N, one) for _ in range(parts)], axis=0)
    q = math.exp(-1 / scale)
    edges = np.round(np.array([-5, -3, -2, -1, -0.5, -0.2, -0.05, 0, 0.05, 0.2, 0.5, 1, 2, 3, 5]) * scale)
    sizes = np.abs(edges)
    below = np.where(edges <= 0, q * q**sizes / (1 + q), 1 - q**sizes / (1 + q))
    counts = np.histogram(total + 0.5, [-np.inf, *edges, np.inf])[0]
    assert stats.chisquare(counts, np.diff([0, *below, 1]) * N).pvalue > 0.001
    assert polya_difference(scale, parts, 0, one).size == 0
