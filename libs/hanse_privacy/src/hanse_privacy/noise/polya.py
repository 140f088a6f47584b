"""Shares of a discrete Laplace: differences of Polya variables, drawn as points of a Poisson process.

A Polya variable (negative binomial, size r, probability 1 - e^(-1/scale)) is the sum of the points of a Poisson
process with intensity r e^(-k/scale)/k at k = 1, 2, ...; the difference of two has twice the intensity, and random
signs. Most points are small: the sum of those up to 2^11 is drawn at once, from a table of its law. The others are
proposed evenly in cells, with the intensity that a cell has at its start, and kept with the ratio of the two. How
many, and in which cells, is drawn from tables, too (`noise.tables`), so a share is as near to its law as those.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.noise.exact import Integers, check_scale, discrete_laplace
from hanse_privacy.noise.source import NoiseSource
from hanse_privacy.noise.tables import Table
from hanse_privacy.noise.weights import REACH_LAPLACE, UNIT_BITS, compound_weights, exp_in_units, poisson_weights

_BLOCK = 1 << 13
_NEAR = 1 << 11
"""The largest point of those whose sum has a table."""
_NEAR_REACH = 32
"""How far that table reaches, in multiples of the largest point: beyond is less than 2^-146. By Chernoff's bound, for
size r and any t, exp(-32 t + r (exp(t) - 1)); for r = 1/2 with t = log(64)."""
_CELL_BITS = 9
"""Cells of an octave: 2^9, so that most of what is proposed is kept, and few points need an exponential."""
_CERTAIN = 2.0**-40
"""How near to a coin's probability its random number may be before the exponential is worked out to 100 digits."""


@dataclass(frozen=True, slots=True)
class _Points:
    """The process of a scale, beyond `_near_end`.

    Attributes:
        cells: which cell a proposed point is in.
        starts, within: of the cells, and their widths, which are powers of two, less 1: (c,) int64.
        least: no point is kept with a smaller probability, in units of 2^-32; 2^32 where all are kept.
        mass: of all cells, in units of 2^-256: how many points are proposed for r = 1.
    """

    cells: Table
    starts: Integers
    within: Integers
    least: int
    mass: int


def polya_difference(scale: int, parts: int, count: int, source: NoiseSource) -> Integers:
    """One of `parts` shares of a discrete Laplace: the difference of two Polya variables of size 1/parts: (count,).

    The sum of `parts` independent shares is the discrete Laplace of this scale. The work is in proportion to
    count/parts, and the memory to a block.

    Args:
        scale: in steps, 1 to 2^50.
        parts: at least 1; the sites whose shares together are the whole noise.
    """
    check_scale(scale)
    if parts < 1:
        raise HanseError(ErrorCode.INVALID_INPUT, f"parts of noise: {parts}, expected at least 1")
    if parts == 1:
        return discrete_laplace(scale, count, source)
    process, counts, near = _points(scale), _counts(scale, parts), _near(scale, parts)
    out = np.zeros(count, dtype=np.int64)
    for start in range(0, count, _BLOCK):
        block = out[start : start + _BLOCK]
        ends = np.cumsum(counts.draw(block.size, source), dtype=np.int64)
        points = _propose(process, scale, int(ends[-1]), source)
        signs = -source.bits(points.size).view(np.int8).astype(np.int64)
        points ^= signs  # -1 - point where the sign is -1
        points -= signs
        sums = np.concatenate([[0], np.cumsum(points)])[ends]
        block[0], block[1:] = sums[0], np.diff(sums)
        block += near.draw(block.size, source)
        block -= near.draw(block.size, source)
    return out


def _propose(process: _Points, scale: int, count: int, source: NoiseSource) -> Integers:
    """Points of the process; zero for those that are not kept."""
    cells = process.cells.draw(count, source)
    starts, within = process.starts.take(cells), process.within.take(cells)
    within &= source.words(count).view(np.int64)
    points: Integers = starts + within
    coins = source.half_words(count)
    doubtful = np.flatnonzero(coins >= process.least)
    lost = ~_keeps(points[doubtful], starts[doubtful], scale, coins[doubtful], source)
    points[doubtful[lost]] = 0
    return points


def _keeps(
    points: Integers, starts: Integers, scale: int, coins: NDArray[np.uint32], source: NoiseSource
) -> NDArray[np.bool_]:
    """Whether coins of start/point exp(-(point - start)/scale) show True, whose first 32 bits are given."""
    more = source.words(points.size)
    number = (coins + more * 2.0**-64) * 2.0**-32
    chance = starts / points * np.exp((starts - points) / scale)
    kept: NDArray[np.bool_] = number < chance
    for index in np.flatnonzero(np.abs(number - chance) < _CERTAIN):
        digits = (int(coins[index]) << 64) + int(more[index])
        kept[index] = keeps_exactly(int(points[index]), int(starts[index]), scale, digits, source)
    return kept


def keeps_exactly(point: int, start: int, scale: int, digits: int, source: NoiseSource) -> bool:
    """A coin of start/point exp(-(point - start)/scale), of whose random number the first 96 bits are given."""
    further = int.from_bytes(source.words(2).astype("<u8").tobytes(), "little")
    chance = exp_in_units(Fraction(start - point, scale)) * start // point
    return (digits << 128) + further < chance >> UNIT_BITS - 224


def _near_end(scale: int) -> int:
    return min(_NEAR, scale)


@lru_cache(maxsize=8)
def _near(scale: int, parts: int) -> Table:
    """The sum of the points up to `_near_end` of a Polya variable of size 1/parts."""
    return Table(compound_weights(scale, parts, _near_end(scale), _NEAR_REACH * _near_end(scale)))


@lru_cache(maxsize=4)
def _points(scale: int) -> _Points:
    starts, widths, start = [], [], _near_end(scale) + 1
    while start <= REACH_LAPLACE * scale:
        octave = min(start.bit_length(), scale.bit_length() + 2)
        starts.append(start)
        widths.append(1 << max(0, octave - 1 - _CELL_BITS))
        start += widths[-1]
    weights = [
        exp_in_units(Fraction(-start, scale)) * width // start for start, width in zip(starts, widths, strict=True)
    ]
    least = (
        min(
            start / (start + width) * math.exp(-width / scale)
            for start, width in zip(starts, widths, strict=True)
            if width > 1
        )
        if widths[-1] > 1
        else 1.0
    )
    return _Points(
        Table(weights),
        np.array(starts, np.int64),
        np.array(widths, np.int64) - 1,
        math.floor(least * 2**32),
        sum(weights),
    )


@lru_cache(maxsize=8)
def _counts(scale: int, parts: int) -> Table:
    """How many points are proposed for a number."""
    return Table(poisson_weights(Fraction(2 * _points(scale).mass, parts << UNIT_BITS)))
