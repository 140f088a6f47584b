"""Discrete Gaussians on the integers around any centre, by tables of integers: noise that takes off an exact part of
earlier noise, without rounding it.

A draw around a centre with k bits after the point begins with a wide one on the grid of 2^-k, added to the centre. Then
bit by bit its last bit goes: (m + x)/2 for even m, with x around 0, or odd m, with x around 1/2 (Micciancio and Walter
2017, section 5). Each step adds `exact.SMOOTH` of its own grid to the variance, and each is within `exact.DISTANCE` of
the Gaussian around the same centre with the variances' sum (Peikert 2010, theorem 3.1, which is of cosets, too).

So the sum of several sites' draws is, within as much, the Gaussian around the sum of their centres with the sum of
their variances, whatever each centre was (`distributed.gaussian_gap`): it depends on earlier sums alone, and not on who
has drawn what of them. And it hides what a normal variable around that centre hides whose variance is less by SMOOTH.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from hanse_fabric.errors import invalid
from hanse_privacy.correlated.matrix import FRACTION, LARGEST_SIGMA, LEAST_SIGMA
from hanse_privacy.noise.exact import SMOOTH, Integers, discrete_gaussian
from hanse_privacy.noise.made_once import made_once
from hanse_privacy.noise.source import NoiseSource
from hanse_privacy.noise.tables import NoiseTable
from hanse_privacy.noise.weights import gaussian_weights, half_width

_ADDED = SMOOTH * sum(Fraction(1, 4**bit) for bit in range(FRACTION))


def centred_gaussian(sigma: int, centres: Integers, source: NoiseSource) -> Integers:
    """Integers x with P(x) proportional to exp(-(x - c)^2/(2 s^2)), where s is `sigma` or up to 2^-8 more: (count,).

    Args:
        sigma: in steps of the grid.
        centres: c, in units of 2^-8 steps: (count,).

    Raises:
        HanseError: INVALID_INPUT for a sigma below 4 or above 2^40.
    """
    if not LEAST_SIGMA <= sigma <= LARGEST_SIGMA:
        raise invalid("noise", f"of deviation {sigma} steps of the grid", f"{LEAST_SIGMA} to 2^40 steps")
    wide = math.isqrt(math.floor((sigma**2 - _ADDED) * 4**FRACTION)) + 1
    made: Integers = centres + discrete_gaussian(wide, centres.size, source)
    (even, least_even), (odd, least_odd) = _tables()
    for _ in range(FRACTION):
        half = np.flatnonzero(made & 1)
        drawn = even.draw(made.size, source).astype(np.int64) + least_even
        drawn[half] = odd.draw(half.size, source).astype(np.int64) + least_odd
        made >>= 1
        made += drawn
    return made


@made_once(1)
def _tables() -> tuple[tuple[NoiseTable, int], tuple[NoiseTable, int]]:
    """Of draws around 0 and around 1/2, each with its least number: every other weight of one twice as wide."""
    weights, reach = gaussian_weights(4 * SMOOTH), half_width(4 * SMOOTH)
    numbers = range(-reach, reach + 1)
    even = [(number // 2, weight) for number, weight in zip(numbers, weights, strict=True) if number % 2 == 0]
    odd = [((number + 1) // 2, weight) for number, weight in zip(numbers, weights, strict=True) if number % 2]
    first, second = (
        (NoiseTable([weight for _, weight in found]), min(number for number, _ in found)) for found in (even, odd)
    )
    return first, second
