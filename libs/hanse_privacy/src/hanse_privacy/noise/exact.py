"""Samplers of integer noise, discrete Gaussian and discrete Laplace, with a proved distance from their laws.

A number is a sum of digits, each drawn from a table (`noise.tables`):
- discrete Gaussian: x + s y is nearly the discrete Gaussian of variance v + s^2 w, where x and y are discrete Gaussians
  of variances v and w, and v w/(v + s^2 w) is at least SMOOTH (Peikert 2010, theorem 3.1; Micciancio, Walter 2017). So
  a wide one is a narrow one and a multiple of another.
- discrete Laplace: the digits of a geometric variable are independent; the highest comes with the sign.

So every number is within 2^-138 of its law in total variation (`DISTANCE`): ends of tables that are left out (2^-146),
probabilities that are rounded to 2^-160, of 2^16 each, and the sum of Gaussians (2^-146). It adds at most
(1 + e^epsilon) DISTANCE to delta for each number: 2^50 of them cost below 2^-50 for every epsilon up to 25.

A discrete Gaussian hides no less than a continuous one of variance sigma^2 - SMOOTH, to within the same distance: it is
that one, rounded at random to the integers by a discrete Gaussian of variance SMOOTH around it (Peikert 2010), and
rounding is done after the release. So accountants take it for normal noise, in any dimension.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.noise.made_once import made_once
from hanse_privacy.noise.source import NoiseSource
from hanse_privacy.noise.tables import LARGEST_BITS, NoiseTable
from hanse_privacy.noise.weights import (
    REACH,
    REACH_LAPLACE,
    UNIT_BITS,
    exp_in_units,
    gaussian_weights,
    geometric_weights,
    half_width,
)

Integers = NDArray[np.int64]

LARGEST_SCALE = 2**50
DISTANCE = 2.0**-138
"""In total variation, of one number from its law, whatever the law."""
SMOOTH = Fraction(52, 10)
"""Variance from which on the integers' discrete Gaussian is smooth: the sum of exp(-(x - c)^2/(2 SMOOTH)) over the
integers x is the same for every c, but for a factor within 2^-147 of 1: 2 exp(-2 pi^2 SMOOTH) (Micciancio, Regev 2007,
lemma 3.3)."""
_WIDEST = Fraction((1 << (LARGEST_BITS - 1)) - 2) ** 2 / REACH**2
_BLOCK = 1 << 15


@dataclass(frozen=True, slots=True)
class _Digit:
    """A part of a number: `factor` times (what the table gives less `middle`)."""

    table: NoiseTable
    factor: int
    middle: int = 0


def discrete_gaussian(sigma: int, count: int, source: NoiseSource) -> Integers:
    """Variables with P(x) proportional to exp(-x^2/(2 sigma^2)): (count,).

    Args:
        sigma: in steps of the grid, 1 to 2^50.
    """
    check_scale(sigma)
    digits = _gaussian_digits(sigma)
    out = np.empty(count, dtype=np.int64)
    for start in range(0, count, _BLOCK):
        part = out[start : start + _BLOCK]
        part[:] = -sum(digit.middle * digit.factor for digit in digits)
        for digit in digits:
            part += digit.table.draw(part.size, source).astype(np.int64) * digit.factor
    return out


def discrete_laplace(scale: int, count: int, source: NoiseSource) -> Integers:
    """Variables with P(x) proportional to exp(-|x|/scale): (count,).

    Args:
        scale: in steps of the grid, 1 to 2^50.
    """
    check_scale(scale)
    exponent = Fraction(1, scale)
    return _from_digits(_laplace_digits(exponent, exp_in_units(-exponent)), count, source)


def floored_laplace(scale: int, count: int, source: NoiseSource) -> Integers:
    """Continuous Laplace variables of this scale, rounded down: (count,). Rounding after the release hides no less.

    Args:
        scale: in steps of the grid, 1 to 2^50.
    """
    check_scale(scale)
    return _from_digits(_laplace_digits(Fraction(1, scale), 1 << UNIT_BITS), count, source)


def geometric(exponent: Fraction, count: int, source: NoiseSource) -> Integers:
    """Variables with P(x) proportional to exp(-exponent x), x = 0, 1, ...: (count,)."""
    return _from_digits(_laplace_digits(exponent, 0), count, source)


def _from_digits(digits: tuple[_Digit, ...], count: int, source: NoiseSource) -> Integers:
    top, *lower = digits
    out = np.empty(count, dtype=np.int64)
    for start in range(0, count, _BLOCK):
        part = out[start : start + _BLOCK]
        part[:] = top.table.draw(part.size, source)
        part -= top.middle
        sign = part >> 63  # -1 for those below zero: their digits count from the other end
        part *= top.factor
        if lower:
            rest = np.zeros(part.size, dtype=np.int64)
            for digit in lower:
                rest += digit.table.draw(part.size, source).astype(np.int64) * digit.factor
            part += rest ^ (sign & (top.factor - 1))
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


@made_once(16)
def _gaussian_digits(sigma: int) -> tuple[_Digit, ...]:
    digits, variance, factor = [], Fraction(sigma**2), 1
    while variance > _WIDEST:
        narrow = min(_WIDEST, variance / 2)
        digits.append(_gaussian_digit(narrow, factor))
        step = math.isqrt(math.floor((variance - narrow) * narrow / (variance * SMOOTH)))
        variance, factor = (variance - narrow) / step**2, factor * step
    return (*digits, _gaussian_digit(variance, factor))


def _gaussian_digit(variance: Fraction, factor: int) -> _Digit:
    return _Digit(_gaussian_table(variance), factor, half_width(variance))


@made_once(16)
def _gaussian_table(variance: Fraction) -> NoiseTable:
    """Every wide number has a digit of `_WIDEST`."""
    return NoiseTable(gaussian_weights(variance))


@made_once(16)
def _laplace_digits(exponent: Fraction, below: int) -> tuple[_Digit, ...]:
    """Of geometric variables G, and of -1 - G.

    Args:
        below: how often the latter, for each of the former: in units of 2^-256.

    Returns:
        the highest digit first: of it, indices from `middle` on are for G, those below for -1 - G.
    """
    reach = math.ceil(REACH_LAPLACE / exponent)
    bits = reach.bit_length() + (below > 0)
    count = -(-bits // LARGEST_BITS)
    each = -(-bits // count)
    lower = [
        _Digit(NoiseTable(geometric_weights(exponent * (1 << each * place), 1 << each)), 1 << each * place)
        for place in range(count - 1)
    ]
    factor = 1 << each * (count - 1)
    up = geometric_weights(exponent * factor, reach // factor + 1)
    down = [weight * below >> UNIT_BITS for weight in up] if below else []
    return (_Digit(NoiseTable(down[::-1] + up), factor, len(down)), *lower)
