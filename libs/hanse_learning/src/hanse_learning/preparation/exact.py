"""Exact sums of numbers and of their squares, in whichever order: as whole numbers at a fixed scale."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hanse_learning.preparation.scales import SQUARE_FRACTION, SUM_FRACTION

_BLOCK = 1 << 16
"""Rows of which products of 18 bits are summed exactly in float64."""
_PART = 18


def totals(values: NDArray[np.float64]) -> tuple[int, int]:
    """`rounded` sums of numbers (n,), which are finite."""
    sums: dict[int, list[int]] = {}
    add(values, sums)
    return rounded(sums)


def add(values: NDArray[np.float64], sums: dict[int, list[int]]) -> None:
    """Add numbers (n,) to exact sums, which begin empty."""
    for start in range(0, len(values), _BLOCK):
        _add_block(values[start : start + _BLOCK], sums)


def rounded(sums: dict[int, list[int]]) -> tuple[int, int]:
    """(sum * 2^SUM_FRACTION, sum of squares * 2^SQUARE_FRACTION) of what was added, exact until the last bit is
    rounded."""
    total = squares = 0
    for exponent, (ones, *products) in sums.items():
        total += _scaled(ones, exponent + SUM_FRACTION)
        whole = sum(product << _PART * at for at, product in enumerate(products))
        squares += _scaled(whole, 2 * exponent + SQUARE_FRACTION)
    return total, squares


def _add_block(values: NDArray[np.float64], sums: dict[int, list[int]]) -> None:
    """Add to the sums by exponent: of the mantissas, and of the parts of their squares from the lowest.

    A mantissa of 53 bits is three parts of 18, low to high: a, b, c. Its square is
    a^2 + 2ab 2^18 + (b^2 + 2ac) 2^36 + 2bc 2^54 + c^2 2^72.
    """
    fractions, exponents = np.frexp(values)
    mantissas = (fractions * 2.0**53).astype(np.int64)
    found, place = np.unique(exponents, return_inverse=True)
    size, mask = np.abs(mantissas), (1 << _PART) - 1
    a, b, c = ((size >> _PART * at & mask).astype(np.float64) for at in range(3))
    signs = np.sign(mantissas)

    def per_exponent(numbers: NDArray[np.float64]) -> list[int]:
        return [int(total) for total in np.bincount(place, numbers, len(found))]

    low, middle, high = (per_exponent(part * signs) for part in (a, b, c))
    squares = [per_exponent(part) for part in (a * a, a * b, b * b, a * c, b * c, c * c)]
    for at, exponent in enumerate(found.tolist()):
        ones = low[at] + (middle[at] << _PART) + (high[at] << 2 * _PART)
        aa, ab, bb, ac, bc, cc = (part[at] for part in squares)
        former = sums.setdefault(int(exponent) - 53, [0] * 6)
        for index, more in enumerate((ones, aa, 2 * ab, bb + 2 * ac, 2 * bc, cc)):
            former[index] += more


def _scaled(whole: int, shift: int) -> int:
    """whole * 2^shift, rounded to the nearest."""
    return whole << shift if shift >= 0 else (whole + (1 << -shift - 1)) >> -shift
