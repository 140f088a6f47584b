"""Exact samplers of integer noise: discrete Laplace, discrete Gaussian, and shares of the discrete Laplace.

Scales are whole numbers of steps of the grid that the noise lives on (for noise in a ring: of 2^-fraction). With that,
every acceptance probability is a product of rationals and of exp(-rational), which `NoiseSource` draws exactly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.noise.source import NoiseSource, Words

Integers = NDArray[np.int64]

LARGEST_SCALE = 2**50
_BLOCK = 1 << 16


def discrete_laplace(scale: int, count: int, source: NoiseSource) -> Integers:
    """Variables with P(x) proportional to exp(-|x|/scale): (count,).

    Canonne, Kamath, Steinke 2020, algorithm 2, with a denominator of 1.

    Args:
        scale: in steps, at least 1.
    """
    check_scale(scale)
    out = np.empty(count, dtype=np.int64)
    for start in range(0, count, _BLOCK):
        part = out[start : start + _BLOCK]
        filled = 0
        while filled < part.size:
            values = _laplace_batch(scale, int((part.size - filled) * 1.65) + 16, source)[: part.size - filled]
            part[filled : filled + values.size] = values
            filled += values.size
    return out


def discrete_gaussian(sigma: int, count: int, source: NoiseSource) -> Integers:
    """Variables with P(x) proportional to exp(-x^2/(2 sigma^2)): (count,).

    Canonne, Kamath, Steinke 2020, algorithm 3, for a whole sigma: y from the discrete Laplace of the same scale is kept
    with exp(-(|y| - sigma)^2/(2 sigma^2)). With ||y| - sigma| = q sigma + r that is exp(-1/2)^(q^2) exp(-r/sigma)^q
    exp(-(r/sigma)^2/2), of which each factor is drawn with integers below 2^64, however large sigma is.
    """
    check_scale(sigma)
    out = np.empty(count, dtype=np.int64)
    for start in range(0, count, _BLOCK):
        part = out[start : start + _BLOCK]
        filled = 0
        while filled < part.size:
            proposed = _laplace_batch(sigma, int((part.size - filled) * 2.2) + 16, source)
            values = proposed[_keeps_gaussian(proposed, sigma, source)][: part.size - filled]
            part[filled : filled + values.size] = values
            filled += values.size
    return out


def polya_difference(scale: int, parts: int, count: int, source: NoiseSource) -> Integers:
    """One of `parts` shares of a discrete Laplace: the difference of two Polya variables of size 1/parts: (count,).

    The sum of `parts` independent shares is exactly the discrete Laplace of this scale. A Polya
    variable (negative binomial, size r, probability 1 - e^(-1/scale)) is the sum of the points of a Poisson process
    with intensity r e^(-k/scale)/k at k = 1, 2, ...; the difference is the same with twice the intensity and random
    signs. Up to the scale the points are proposed in octaves [2^j, 2^(j+1)), of mass r each; beyond it in runs
    [v scale, (v+1) scale), of mass r e^-v; and kept with the ratio of the intensities. The work is in proportion to
    count/parts, and the memory to a block of 65,536.

    Args:
        scale: in steps, at least 1.
        parts: at least 1; the sites whose shares together are the whole noise.
    """
    check_scale(scale)
    if parts < 1:
        raise HanseError(ErrorCode.INVALID_INPUT, f"parts of noise: {parts}, expected at least 1")
    if parts == 1:
        return discrete_laplace(scale, count, source)
    out = np.zeros(count, dtype=np.int64)
    for start in range(0, count, _BLOCK):
        block = out[start : start + _BLOCK]
        octaves = scale.bit_length()
        for points in (
            _octave_points(scale, _poisson(2 * block.size * octaves, parts, source), octaves, source),
            _run_points(scale, _poisson(2 * block.size, parts, source), source),
        ):
            signed = points.astype(np.int64)
            np.negative(signed, out=signed, where=source.bits(signed.size))
            np.add.at(block, source.below(block.size, signed.size).astype(np.intp), signed)
    return out


def check_scale(scale: int) -> None:
    """Refuse scales that would round noise to zero, or overflow.

    Raises:
        HanseError: INVALID_INPUT with the number and the range.
    """
    if not 1 <= scale <= LARGEST_SCALE:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"scale of noise: {scale} steps of the grid, expected 1 to {LARGEST_SCALE}",
            hint="below one step noise would round to zero: more fraction bits, a smaller epsilon, or a larger clip",
        )


def _laplace_batch(scale: int, count: int, source: NoiseSource) -> Integers:
    """Up to `count` discrete Laplace variables: what is left of as many proposals."""
    rest = source.below(scale, count)
    rest = rest[source.exp_minus(rest, scale)]
    whole = np.zeros(rest.size, dtype=np.int64)
    going = np.arange(rest.size)
    while going.size:  # the number of successes of coins of 1/e before the first failure
        going = going[source.exp_minus_one(going.size)]
        whole[going] += 1
    size = rest.astype(np.int64) + scale * whole
    negative = source.bits(size.size)
    kept = ~(negative & (size == 0))  # else zero would come twice as often
    signed: Integers = np.where(negative[kept], -size[kept], size[kept])
    return signed


def _keeps_gaussian(proposed: Integers, sigma: int, source: NoiseSource) -> NDArray[np.bool_]:
    distance = np.abs(np.abs(proposed) - sigma)
    whole, rest = distance // sigma, (distance % sigma).astype(np.uint64)
    kept = _half_square(rest, sigma, source)
    halves, steps = np.where(kept, whole * whole, 0), np.where(kept, whole, 0)
    while (trying := np.flatnonzero(halves > 0)).size:  # exp(-1/2), q^2 times
        lost = trying[~source.exp_minus(np.ones(trying.size, dtype=np.uint64), 2)]
        halves[trying] -= 1
        kept[lost], halves[lost], steps[lost] = False, 0, 0
    while (trying := np.flatnonzero(steps > 0)).size:  # exp(-r/sigma), q times
        lost = trying[~source.exp_minus(rest[trying], sigma)]
        steps[trying] -= 1
        kept[lost], steps[lost] = False, 0
    return kept


def _half_square(rest: Words, sigma: int, source: NoiseSource) -> NDArray[np.bool_]:
    """Coins of exp(-(rest/sigma)^2/2), as `NoiseSource.exp_minus`: two draws and a fair coin for (rest/sigma)^2/2."""
    odd = np.ones(rest.size, dtype=np.bool_)
    active = np.arange(rest.size)
    k = 1
    while active.size:
        for _ in range(2):
            active = active[source.below(sigma, active.size) < rest[active]]
        active = active[source.below(2 * k, active.size) == 0]
        odd[active] = ~odd[active]
        k += 1
    return odd


def _poisson(numerator: int, denominator: int, source: NoiseSource) -> int:
    """One Poisson variable of mean numerator/denominator, a sum of such of mean 1, the last of them thinned."""
    whole, rest = divmod(numerator, denominator)
    total = int(source.poisson_one(whole).sum()) if whole else 0
    if rest:
        last = int(source.poisson_one(1)[0])
        total += int((source.below(denominator, last) < np.uint64(rest)).sum())
    return total


def _octave_points(scale: int, proposals: int, octaves: int, source: NoiseSource) -> Words:
    """Points in [1, scale), proposed evenly over octaves, kept with (2^j/k) exp(-k/scale)."""
    low: Words = np.left_shift(np.uint64(1), source.below(octaves, proposals))
    points: Words = low | (source.words(proposals) & (low - np.uint64(1)))
    inside = points < np.uint64(scale)
    points, low = points[inside], low[inside]
    points = points[source.below(points) < low]
    return points[source.exp_minus(points, scale)]


def _run_points(scale: int, proposals: int, source: NoiseSource) -> Words:
    """Points from scale on: the run v with 2^-v, kept with (2/e)^v, which is P(Poisson(1) <= 1)^v; in it, k is kept
    with (scale/k) exp(-(k - v scale)/scale)."""
    words = source.words(proposals)
    run = np.bitwise_count((words & (~words + np.uint64(1))) - np.uint64(1)).astype(np.uint64) + np.uint64(1)
    run = run[run <= 64]  # beyond, e^-65: left out
    left = run.copy()
    while (trying := np.flatnonzero(left)).size:
        kept = source.poisson_one(trying.size) <= 1
        left[trying] -= np.uint64(1)
        left[trying[~kept]], run[trying[~kept]] = 0, 0
    start = run[run > 0] * np.uint64(scale)
    offset = source.below(scale, start.size)
    kept = source.below(start + offset) < np.uint64(scale)
    start, offset = start[kept], offset[kept]
    return (start + offset)[source.exp_minus(offset, scale)]
