"""Draws from finite laws by the alias method (Walker 1977; Vose 1991), with probabilities that are multiples of 2^-160.

A draw takes one word of 32 bits: the first say a slot, the others are held against the head of the slot's threshold.
Where they are equal (seldom), 128 bits more decide. Nothing is rejected and nothing is rounded: how long a draw takes
tells nothing of what was drawn, and all of it is integers, so that no low bits of a float tell what noise was added to
(Mironov 2012; Holohan and Braghin 2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from hanse_privacy.noise.source import NoiseSource

LARGEST_BITS = 16
"""Of a table's slots: 2^16 of them, 4 bytes each, stay in a core's cache."""
_WORD = 32
_TAIL = 128
_UNITS = 1 << (_WORD + _TAIL)

Indices = NDArray[np.uint32]


class NoiseTable:
    """A law on 0, 1, ..., len(weights) - 1.

    Args:
        weights: in proportion to the probabilities; 1 to 2^16 integers of 0 or more. What is drawn is within
            len(weights)/2^160 of this law, in total variation.
    """

    def __init__(self, weights: Sequence[int]) -> None:
        self._bits = max(1, (len(weights) - 1).bit_length())
        thresholds, aliases = _alias(_in_units(weights), self._bits)
        heads = np.array([threshold >> _TAIL for threshold in thresholds], dtype=np.uint64)
        packed = heads << np.uint64(self._bits) | np.array(aliases, dtype=np.uint64)
        self._packed: Indices = packed.astype(np.uint32)
        self._tails = np.array(
            [(threshold >> 64 & (1 << 64) - 1, threshold & (1 << 64) - 1) for threshold in thresholds], dtype=np.uint64
        )

    def draw(self, count: int, source: NoiseSource) -> Indices:
        """Independent draws: (count,)."""
        words = source.half_words(count)
        bits, rest = np.uint32(self._bits), np.uint32(_WORD - self._bits)
        slots = words >> rest
        drawn = self._packed.take(slots)
        heads = drawn >> bits
        words &= np.uint32((1 << int(rest)) - 1)
        drawn &= np.uint32((1 << self._bits) - 1)
        equal = np.flatnonzero(words == heads)
        np.copyto(drawn, slots, where=words < heads)
        if equal.size:
            self._decide(drawn, slots, equal, source)
        return drawn

    def _decide(self, drawn: Indices, slots: Indices, at: NDArray[np.intp], source: NoiseSource) -> None:
        more, tails = source.words(2 * at.size).reshape(-1, 2), self._tails[slots[at]]
        below = (more[:, 0] < tails[:, 0]) | ((more[:, 0] == tails[:, 0]) & (more[:, 1] < tails[:, 1]))
        drawn[at[below]] = slots[at[below]]

    def law(self) -> list[int]:
        """The probabilities of what is drawn, in units of 2^-160: for tests."""
        units, slot = [0] * (1 << self._bits), _UNITS >> self._bits
        for index, (packed, (high, low)) in enumerate(zip(self._packed.tolist(), self._tails.tolist(), strict=True)):
            threshold = (packed >> self._bits << _TAIL) + (high << 64) + low
            units[index] += threshold
            units[packed & (1 << self._bits) - 1] += slot - threshold
        return units


def _in_units(weights: Sequence[int]) -> list[int]:
    """Multiples of 2^-160 whose sum is 1: differences of the cumulative sums, which are rounded down."""
    total = sum(weights)
    bounds = [0, *(upto * _UNITS // total for upto in accumulate(weights))]
    return [after - before for before, after in pairwise(bounds)]


def _alias(units: list[int], bits: int) -> tuple[list[int], list[int]]:
    """Thresholds and aliases of 2^bits slots: a slot is itself below its threshold, and its alias from there on."""
    slot = _UNITS >> bits
    left = units + [0] * ((1 << bits) - len(units))
    thresholds, aliases = [0] * len(left), list(range(len(left)))
    small = [index for index, mass in enumerate(left) if mass < slot]
    large = [index for index, mass in enumerate(left) if mass >= slot]
    while small:  # the masses that are left have a mean of one slot: while one is below it, one is above
        less, more = small.pop(), large[-1]
        thresholds[less], aliases[less] = left[less], more
        left[more] -= slot - left[less]
        if left[more] < slot:
            small.append(large.pop())
    return thresholds, aliases
