"""Which values of an entry are sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from hanse_fabric.errors import invalid
from hanse_learning.codecs.stages import Draw, Mask, Values


@dataclass(frozen=True, slots=True)
class Percentile:
    """The values beyond the `p`-th percentile of their entry (Henkel 2021): strictly, so that of one with ties fewer
    than 100 - p percent are sent.

    Of an entry of one value, or whose largest are many and alike, none is strictly beyond: it would never be sent, and
    error feedback would gather it for ever. Of these, what is equal to the percentile is sent.
    """

    p: float
    of: Literal["magnitude", "value"]
    seeded = False

    def choose(self, values: Values, name: str, draw: Draw) -> Mask:
        """See `Sparsifier`."""
        del name, draw
        compared = np.abs(values) if self.of == "magnitude" else values
        if not len(values):
            return np.zeros(0, np.bool_)
        limit = _percentile(compared, self.p)
        kept: Mask = compared > limit
        if not kept.any():
            kept = (compared >= limit) & (values != 0)
        return kept


def _percentile(values: Values, p: float) -> float:
    """With linear interpolation, as numpy's, without its sort."""
    place = p / 100 * (len(values) - 1)
    at = int(place)
    parted = np.partition(values, at)
    low = float(parted[at])
    # The next larger one stands anywhere behind: to look for it is faster than to have it sorted, too.
    high = float(parted[at + 1 :].min()) if place > at else low
    return min(high, low + (place - at) * (high - low))


def _share(fraction: float, size: int) -> int:
    return min(size, max(1, round(fraction * size)))


@dataclass(frozen=True, slots=True)
class TopK:
    """The values of largest magnitude; of equal ones the first."""

    fraction: float | None
    k: int | None
    seeded = False

    def choose(self, values: Values, name: str, draw: Draw) -> Mask:
        """See `Sparsifier`."""
        del draw
        size = len(values)
        count = self._count(size, name)
        if count >= size:
            return np.ones(size, np.bool_)
        magnitudes = np.abs(values)
        least = np.partition(magnitudes, size - count)[size - count]
        kept: Mask = magnitudes >= least
        surplus = int(np.count_nonzero(kept)) - count
        if surplus:
            equal = np.flatnonzero(magnitudes == least)
            kept[equal[len(equal) - surplus :]] = False
        return kept

    def _count(self, size: int, name: str) -> int:
        if self.fraction is not None:
            return _share(self.fraction, size)
        if self.k is None or self.k > size:
            raise invalid("top_k.k", self.k, f"at most {size}, which is how many values entry {name} has",
                          hint="give a fraction instead")  # fmt: skip
        return self.k


@dataclass(frozen=True, slots=True)
class RandomK:
    """Values at random places, by a seed that both ends know."""

    fraction: float
    seeded = True

    def choose(self, values: Values, name: str, draw: Draw) -> Mask:
        """See `Sparsifier`."""
        del name
        size = len(values)
        numbers, last = draw(size), _share(self.fraction, size) - 1
        # Whoever finds the same number in its place chooses the same, by whatever way of sorting.
        kept: Mask = numbers <= np.partition(numbers, last)[last]
        return kept


@dataclass(frozen=True, slots=True)
class Nonzero:
    """The values that are not zero, of either sign."""

    seeded = False

    def choose(self, values: Values, name: str, draw: Draw) -> Mask:
        """See `Sparsifier`."""
        del name, draw
        kept: Mask = values != 0
        return kept
