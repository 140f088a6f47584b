"""Median and trimmed mean of every column, by a sorting network over rows.

Batcher's odd-even merge sort compares whole rows by elementwise minimum and maximum, so that all columns are sorted at
once in vector registers: about log2(K)^2 / 2 passes over a tile in cache. Weights do not count. Memory: K rows of a
tile. Zeros lose their sign, so that the order in which -0 and 0 stand cannot show in the result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from hanse_learning.server.reduction import TILE, Array, Rows


@dataclass(frozen=True, slots=True)
class Median:
    """The middle value; for an even K the mean of the middle two."""

    def combine(self, updates: Rows, weights: Array, out: Array) -> None:  # noqa: ARG002
        """See `Reduction.combine`; updates K x (n,), out (n,)."""
        _mean_of_middle(updates, trimmed(self, len(updates)), out)


@dataclass(frozen=True, slots=True)
class TrimmedMean:
    """The mean of what is left without the floor(fraction K) smallest and as many largest values, smallest first."""

    fraction: float

    def combine(self, updates: Rows, weights: Array, out: Array) -> None:  # noqa: ARG002
        """See `Reduction.combine`; updates K x (n,), out (n,)."""
        _mean_of_middle(updates, trimmed(self, len(updates)), out)


def trimmed(reduction: Median | TrimmedMean, count: int) -> int:
    """How many of `count` values are left out at each end."""
    if isinstance(reduction, Median):
        return (count - 1) // 2
    # 0.29 * 100 is 28.999...: a product just below an integer means that integer.
    return math.floor(reduction.fraction * count + 1e-9)


def _mean_of_middle(updates: Rows, trim: int, out: Array) -> None:
    """out (n,) = mean of each column's values without the `trim` smallest and largest; sums go from the smallest."""
    for total, rows in sorted_tiles(updates, out, trim):
        mean_of(rows, total)


def sorted_tiles(updates: Rows, out: Array, trim: int = 0) -> Iterator[tuple[Array, list[Array]]]:
    """Tiles of `out` (n,), each with the rows of `updates` K x (n,) sorted column by column, in the dtype of `out`.

    The first and the last `trim` rows are left out. The others are the caller's to change until the next tile.
    """
    count = len(updates)
    step = max(1024, min(TILE, (4 * TILE) // count))
    stack = np.empty((count, min(step, len(out))), out.dtype)
    spare = np.empty(stack.shape[1], out.dtype)
    for start in range(0, len(out), step):
        total = out[start : start + step]
        rows = [stack[k, : len(total)] for k in range(count)]
        for row, update in zip(rows, updates, strict=True):
            np.add(update[start : start + step], out.dtype.type(0), out=row)  # -0 becomes 0
        low_of = spare[: len(total)]
        for a, b, low, high in _network(count, trim):
            if low:
                np.minimum(rows[a], rows[b], out=low_of)
            if high:
                np.maximum(rows[a], rows[b], out=rows[b])
            if low:
                rows[a], low_of = low_of, rows[a]
        yield total, rows[trim : count - trim]


def mean_of(kept: list[Array], out: Array) -> None:
    """out (n,) = the mean of `kept`, rows (n,), which are changed; sums go from the first.

    Halves are added, not sums halved: two values near the largest float have a finite mean.
    """
    scale = out.dtype.type(1 / len(kept))
    np.multiply(kept[0], scale, out=out)
    for row in kept[1:]:
        np.multiply(row, scale, out=row)
        np.add(out, row, out=out)


@cache
def _network(count: int, trim: int) -> tuple[tuple[int, int, bool, bool], ...]:
    """Batcher's comparators (a, b, low, high), a < b, for `count` rows of which the first and the last `trim` are of no
    account: only those on which the others depend; `low` tells whether row a is, `high` whether row b is."""
    needed = set(range(trim, count - trim))
    kept = []
    for a, b in reversed([*_comparators(count)]):
        if a in needed or b in needed:
            kept.append((a, b, a in needed, b in needed))
            needed |= {a, b}
    return tuple(reversed(kept))


def _comparators(count: int) -> Iterator[tuple[int, int]]:
    span = 1
    while span < count:
        gap = span
        while gap >= 1:
            for first in range(gap % span, count - gap, 2 * gap):
                for a in range(first, min(first + gap, count - gap)):
                    if a // (2 * span) == (a + gap) // (2 * span):
                        yield a, a + gap
            gap //= 2
        span *= 2
