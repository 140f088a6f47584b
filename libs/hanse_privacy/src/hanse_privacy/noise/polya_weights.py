"""The weights of a Polya variable (negative binomial) of size r = 1/parts: w(k) = q^k Gamma(k + r)/(Gamma(r) k!), with
q = e^(-1/scale), for numbers k of any size.

Small ones are made one of the other. For the others let z = k + r/2, c = (1 - r)/2, S(t) = sinh(c t)/sinh(t/2). By
Gauss' integral of the digamma function

    ln Gamma(k + r)/k! = -2c ln z + f(z),    f(z) = integral over t > 0 of exp(-z t) (S(t) - 2c)/t.

S falls from S(0) = 2c, so f is below 0 and rises. S(t) is the sum over m of -2 B(2m + 1, r/2)/(2m + 1)! t^(2m), with
Bernoulli's polynomials, and also that over j of (-1)^(j + 1) 8 pi j sin(2 pi j c)/(t^2 + (2 pi j)^2), of which each
part differs from the first M terms of its series by less than the next one. So what S differs by from its first M terms
is at most 4 zeta(2M + 1) (t/2 pi)^(2M)/(2 pi), and what f differs by from the sum of its M - 1, at most

    4 zeta(2M + 1) (2M - 1)!/((2 pi)^(2M + 1) z^(2M)):

for M = 12 below 2^-181 from z = 2^8 on, and for M = 1, of no term, 1/(50 z^2).

Exponential functions take most of the time, so that of ln w(k) is a product: k^-2c, by factors of k, which many numbers
share; e^(-k/scale), from one number to the next, whose distances are few; and what is left, whose logarithm is above
-2^-9, by its series.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from hanse_privacy.noise.weights import UNIT_BITS

SMALL = 1 << 8
"""From here on the series holds."""
_TERMS = 12
"""M."""
_ARTANH_TERMS = 9
_EXP_TERMS = 16
_DIGITS = 60
_FACTORS = (3, 5, 7, 11, 13)


def _inverses(numbers: Iterable[int]) -> tuple[Decimal, ...]:
    with localcontext(prec=_DIGITS):
        return tuple(1 / Decimal(number) for number in numbers)


_OF_ARTANH = _inverses(range(2 * _ARTANH_TERMS - 1, 0, -2))
_OF_EXP = _inverses(math.factorial(n) for n in range(_EXP_TERMS - 1, -1, -1))


def polya_weights(points: Sequence[int], scale: int, parts: int) -> list[int]:
    """w at these points, in units of 2^-256, rounded down, but for a factor within 2^-170 of 1: the factors of w are of
    57 digits and more, and from one point to the next a unit of the 60th is lost.

    Args:
        points: up to 2^17; in any order, but those at few distances from each other are found quickest.
        parts: 2 or more.
    """
    small, made = _small_weights(scale, parts), []
    with localcontext(prec=_DIGITS):
        unit = Decimal(1 << UNIT_BITS)
        anchor = small[SMALL] / (_power(SMALL, parts) * _exp_of_little(_beside(SMALL, parts))) * unit
        at, fall, falls = SMALL, Decimal(1), dict[int, Decimal]()
        for k in points:
            if k < SMALL:
                made.append(int(small[k] * unit))
                continue
            distance = k - at
            if distance not in falls:
                falls[distance] = (Decimal(-distance) / scale).exp()
            at, fall = k, fall * falls[distance]
            made.append(int(anchor * fall * _power(k, parts) * _exp_of_little(_beside(k, parts))))
    return made


def ratio_in_units(point: int, start: int, scale: int, parts: int, bits: int) -> int:
    """w(point)/w(start) in units of 2^-bits, rounded down, as near: for numbers from `SMALL` on."""
    with localcontext(prec=_DIGITS):
        ratio = (_log_weight(point, scale, parts) - _log_weight(start, scale, parts)).exp()
        return int(ratio * (1 << bits))


def _log_weight(k: int, scale: int, parts: int) -> Decimal:
    """ln w(k), but for a constant: for k from `SMALL` on."""
    with localcontext(prec=_DIGITS):
        twos = (k & -k).bit_length() - 1
        ln = _ln(k >> twos) + twos * _ln(2)
        return _beside(k, parts) - Decimal(parts - 1) / parts * ln - Decimal(k) / scale


def _beside(k: int, parts: int) -> Decimal:
    """f(z) - 2c (ln z - ln k), for k from `SMALL` on: it is above -2^-9 and below 0.

    ln z - ln k is 2 artanh(u), u = 1/(4 k parts + 1), which is below 2^-11 from `SMALL` on, and what is left out of the
    series below 2^-210.
    """
    z = k + 1 / Decimal(2 * parts)
    inverse, series = 1 / (z * z), Decimal(0)
    for coefficient in _coefficients(parts):
        series = (series + coefficient) * inverse
    return series - Decimal(parts - 1) / parts * 2 * _artanh(4 * k * parts + 1)


def _artanh(inverse: int) -> Decimal:
    """artanh(1/inverse), for 2^11 and more."""
    u = 1 / Decimal(inverse)
    square, series = u * u, Decimal(0)
    for coefficient in _OF_ARTANH:
        series = series * square + coefficient
    return u * series


def _exp_of_little(x: Decimal) -> Decimal:
    """e^x for |x| below 2^-9: what is left out of the series is below 2^-188."""
    series = Decimal(0)
    for coefficient in _OF_EXP:
        series = series * x + coefficient
    return series


def _power(k: int, parts: int) -> Decimal:
    """k^-2c, by the odd factor of k and its power of two."""
    twos = k & -k
    return _root(k // twos, parts) * _root(twos, parts)


@lru_cache(maxsize=1 << 13)
def _root(number: int, parts: int) -> Decimal:
    """number^-2c, by a small factor, if there is one."""
    for factor in _FACTORS:
        if number % factor == 0 and number > factor:
            return _root(factor, parts) * _root(number // factor, parts)
    with localcontext(prec=_DIGITS):
        return (Decimal(number).ln() * (1 - parts) / parts).exp()


@lru_cache(maxsize=1 << 13)
def _ln(number: int) -> Decimal:
    with localcontext(prec=_DIGITS):
        return Decimal(number).ln()


def _small_weights(scale: int, parts: int) -> list[Decimal]:
    """w(0), ..., w(SMALL)."""
    with localcontext(prec=_DIGITS):
        ratio, weights = (-1 / Decimal(scale)).exp(), [Decimal(1)]
        for k in range(SMALL):
            weights.append(weights[-1] * ratio * (k * parts + 1) / ((k + 1) * parts))
        return weights


@lru_cache(maxsize=16)
def _coefficients(parts: int) -> tuple[Decimal, ...]:
    """Of z^(-2m) in f: -2 B(2m + 1, r/2)/(2m (2m + 1)), for m from M - 1 down to 1."""
    numbers = [Fraction(1)]
    for n in range(1, 2 * _TERMS):
        numbers.append(-sum((math.comb(n + 1, j) * numbers[j] for j in range(n)), Fraction(0)) / (n + 1))
    x, made = Fraction(1, 2 * parts), []
    for n in range(2 * _TERMS - 1, 1, -2):
        polynomial = sum((math.comb(n, j) * numbers[j] * x ** (n - j) for j in range(n + 1)), Fraction(0))
        made.append(-2 * polynomial / (n * (n - 1)))
    with localcontext(prec=_DIGITS):
        return tuple(Decimal(one.numerator) / Decimal(one.denominator) for one in made)
