"""Shares of a discrete Laplace: differences of two Polya variables (negative binomial, of size r = 1/parts).

A Polya variable is proposed evenly in a cell, where each cell has the weight of its first number times its width, and
kept with the ratio of its own weight to that of the first (weights fall), else proposed again. Most cells are narrow
enough that a ratio is nearly 1, so nearly all are kept, and a few bits of the coin say so.

How near a share is to its law (`exact.DISTANCE` is 2^-138): cells end beyond 102 scales, where a Polya variable is less
often than a geometric one, which is the sum of it and another: e^-102 < 2^-147. The table of up to 2^14 cells is
within 2^-146 of its weights (`noise.tables`); these, and the ratios that coins are held against, are within 2^-170 of
theirs (`noise.polya_weights`). What is kept differs from its law by at most twice as much as what is proposed, over the
chance of being kept: all in all 2^-144 for one variable, and 2^-143 for a share.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.noise.exact import Integers, check_scale, discrete_laplace
from hanse_privacy.noise.made_once import made_once
from hanse_privacy.noise.polya_weights import polya_weights, ratio_in_units
from hanse_privacy.noise.source import NoiseSource, Words
from hanse_privacy.noise.tables import NoiseTable
from hanse_privacy.noise.weights import REACH_LAPLACE

_BLOCK = 1 << 14
_CELL_BITS = 7
"""Cells of an octave: 2^7, so that none is wider than 2^-7 of its first number; numbers below 2^8 are cells."""
_SCALE_BITS = 5
"""Nor is one wider than 2^-5 of the scale."""
_COIN = 16
"""Bits of a word that a coin begins with; the place in a cell takes others: none has more than 2^45 numbers."""
_LEAST = (1 << _COIN) - (1 << _COIN - _CELL_BITS) - (1 << _COIN - _SCALE_BITS)
"""In units of 2^-16: no ratio is smaller. That of a number p to the first one, s, of its cell is at least
s/p e^(-(p - s)/scale) (`_chances`), and so at least (1 - 2^-7)(1 - 2^-5)."""
_CERTAIN = 2.0**-20
"""How near to a ratio of floats a coin's number may be before the ratio is worked out to 57 digits."""


@dataclass(frozen=True, slots=True)
class _Polya:
    """The law of a Polya variable.

    Attributes:
        cells: which one is proposed.
        starts, within: of the cells, and their widths, which are powers of two, less 1: (c,) int64.
        wide: whether any cell has more than one number.
    """

    scale: int
    parts: int
    cells: NoiseTable
    starts: Integers
    within: Integers
    wide: bool


def polya_difference(scale: int, parts: int, count: int, source: NoiseSource) -> Integers:
    """One of `parts` shares of a discrete Laplace: the difference of two Polya variables of size 1/parts: (count,).

    The sum of `parts` independent shares is the discrete Laplace of this scale.

    Args:
        scale: in steps, 1 to 2^50.
        parts: at least 1; the sites whose shares together are the whole noise.
    """
    check_scale(scale)
    if parts < 1:
        raise HanseError(ErrorCode.INVALID_INPUT, f"parts of noise: {parts}, expected at least 1")
    if parts == 1:
        return discrete_laplace(scale, count, source)
    law = _law(scale, parts)
    out = np.empty(count, dtype=np.int64)
    for start in range(0, count, _BLOCK):
        block = out[start : start + _BLOCK]
        drawn = _draw(law, 2 * block.size, source)
        np.subtract(drawn[: block.size], drawn[block.size :], out=block)
    return out


def _draw(law: _Polya, count: int, source: NoiseSource) -> Integers:
    """Polya variables: (count,)."""
    drawn, lost = _propose(law, count, source)
    while lost.size:
        drawn[lost], again = _propose(law, lost.size, source)
        lost = lost[again]
    return drawn


def _propose(law: _Polya, count: int, source: NoiseSource) -> tuple[Integers, NDArray[np.intp]]:
    """Numbers, and which of them are not kept."""
    cells = law.cells.draw(count, source)
    starts: Integers = law.starts.take(cells)
    if not law.wide:
        return starts, np.empty(0, dtype=np.intp)
    words = source.words(count)
    points: Integers = law.within.take(cells)
    points &= words.view(np.int64)
    points += starts
    doubtful = np.flatnonzero(words >= np.uint64(_LEAST << 64 - _COIN))
    kept = _keeps(law, points[doubtful], starts[doubtful], words[doubtful] >> np.uint64(64 - _COIN), source)
    return points, doubtful[~kept]


def _keeps(law: _Polya, points: Integers, starts: Integers, coins: Words, source: NoiseSource) -> NDArray[np.bool_]:
    """Whether coins of w(point)/w(start), whose first 16 bits are given, show True."""
    more = source.words(points.size)
    numbers = (coins + more * 2.0**-64) * 2.0**-_COIN
    chances = _chances(law, points, starts)
    kept: NDArray[np.bool_] = (numbers < chances) | (points == starts)  # floats can round a number up to 1
    for index in np.flatnonzero((np.abs(numbers - chances) < _CERTAIN) & (points > starts)):
        digits = (int(coins[index]) << 64) + int(more[index])
        kept[index] = keeps_exactly(int(points[index]), int(starts[index]), law.scale, law.parts, digits, source)
    return kept


def _chances(law: _Polya, points: Integers, starts: Integers) -> NDArray[np.float64]:
    """w(point)/w(start) by floats, a little less: for starts from 2^8 on by a part of at most 2^-21.

    With z = k + r/2 it is (z(start)/z(point))^(1 - r) e^(-(point - start)/scale), times e^(f(z(point)) - f(z(start))),
    which is left out: f rises and is above -1/(50 z^2) (`noise.polya_weights`).
    """
    beyond = points - starts
    places = starts + 0.5 / law.parts
    chances: NDArray[np.float64] = np.exp(np.log1p(beyond / places) * (1 / law.parts - 1) - beyond / law.scale)
    return chances


def keeps_exactly(point: int, start: int, scale: int, parts: int, digits: int, source: NoiseSource) -> bool:
    """A coin of w(point)/w(start), of whose random number the first 80 bits are given."""
    further = int.from_bytes(source.words(2).astype("<u8").tobytes(), "little")
    return (digits << 128) + further < ratio_in_units(point, start, scale, parts, _COIN + 64 + 128)


@made_once(8)
def _law(scale: int, parts: int) -> _Polya:
    starts, widths, start = [], [], 0
    while start <= REACH_LAPLACE * scale:
        width = 1 << max(0, min(start.bit_length() - 1 - _CELL_BITS, scale.bit_length() - 1 - _SCALE_BITS))
        starts.append(start)
        widths.append(width)
        start += width
    firsts = polya_weights(starts, scale, parts)
    return _Polya(
        scale,
        parts,
        NoiseTable([weight * width for weight, width in zip(firsts, widths, strict=True)]),
        np.array(starts, np.int64),
        np.array(widths, np.int64) - 1,
        widths[-1] > 1,
    )
