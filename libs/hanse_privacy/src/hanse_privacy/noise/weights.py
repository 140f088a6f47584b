"""The weights of discrete Gaussian and geometric laws as integers in units of 2^-256, each within 2^-220 of its law.

A weight is made of the one before by products of fixed-point numbers; the first factors are exponentials of Python's
`decimal`, which rounds them correctly.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

UNIT_BITS = 256
_DIGITS = 100
REACH = Fraction(143, 10)
"""In standard deviations: beyond is less than 2 exp(-REACH^2/2) < 2^-146 (discrete Gaussians are as concentrated as
continuous ones: Canonne, Kamath, Steinke 2020)."""
REACH_LAPLACE = 102
"""In scales: beyond is less than exp(-102) < 2^-147."""


def half_width(variance: Fraction) -> int:
    """How far a table of a discrete Gaussian reaches to either side."""
    return math.isqrt(math.floor(REACH * REACH * variance)) + 1


def gaussian_weights(variance: Fraction) -> list[int]:
    """exp(-x^2/(2 variance)) for x from -half_width to half_width."""
    ratio, square = exp_in_units(-1 / (2 * variance)), exp_in_units(-1 / variance)
    weights = [1 << UNIT_BITS]
    for _ in range(half_width(variance)):
        weights.append(weights[-1] * ratio >> UNIT_BITS)
        ratio = ratio * square >> UNIT_BITS
    return weights[:0:-1] + weights


def geometric_weights(exponent: Fraction, count: int) -> list[int]:
    """exp(-exponent x) for x = 0, 1, ..., count - 1."""
    ratio = exp_in_units(-exponent)
    weights = [1 << UNIT_BITS]
    for _ in range(count - 1):
        weights.append(weights[-1] * ratio >> UNIT_BITS)
    return weights


def exp_in_units(x: Fraction) -> int:
    """exp(x) in units of 2^-256, rounded down."""
    with localcontext(prec=_DIGITS):
        return int((Decimal(x.numerator) / Decimal(x.denominator)).exp() * (1 << UNIT_BITS))
