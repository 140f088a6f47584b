"""Genotype counts by group of samples, on packed bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.study import TILE
from hanse_genomics.arrays import Counts, Packed
from hanse_genomics.genotypes.packed import LOW, Words, tiles, words_of


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Groups of samples to count by; a sample may be in none or in several.

    Attributes:
        samples: n.
        masks: uint64 (G, W): the lower bit of each member's genotype.
        sizes: int64 (G,): members.
    """

    samples: int
    masks: Words
    sizes: Counts


def group(members: NDArray[np.bool_]) -> Groups:
    """Groups from their members: bool (G, n)."""
    listed = np.atleast_2d(members)
    count, samples = listed.shape
    bits = np.zeros((count, words_of(samples) * 64), dtype=bool)
    bits[:, : 2 * samples : 2] = listed
    masks = np.packbits(bits, axis=1, bitorder="little").view("<u8")
    return Groups(samples, masks, listed.sum(axis=1, dtype=np.int64))


def count(packed: Packed, groups: Groups) -> Counts:
    """Genotype counts.

    Of a genotype's bits, 11 is no copy, both lower and upper bit; 01 is missing, 10 one copy; so three counts of bits
    (lower, upper, both) give the four numbers.

    Args:
        packed: uint8 (S, ceil(n/4)).

    Returns:
        int64 (S, G, 4): samples of the group with 0, 1, 2 copies of A1, and with a missing genotype.
    """
    counts = np.empty((len(packed), len(groups.sizes), 4), dtype=np.int64)
    shape = (min(TILE, len(packed)), groups.masks.shape[1])
    low, high, both, masked = (np.empty(shape, dtype="<u8") for _ in range(4))
    ones = np.empty(shape, dtype=np.uint8)
    for rows, words in tiles(packed, groups.samples):
        n = len(words)
        np.bitwise_and(words, LOW, out=low[:n])
        np.right_shift(words, np.uint64(1), out=high[:n])
        high[:n] &= LOW
        np.bitwise_and(low[:n], high[:n], out=both[:n])
        for at, mask in enumerate(groups.masks):
            lower, upper, none = (_ones(plane[:n], mask, masked[:n], ones[:n]) for plane in (low, high, both))
            out = counts[rows, at]
            out[:, 0] = none
            out[:, 1] = upper - none
            out[:, 2] = groups.sizes[at] - lower - upper + none
            out[:, 3] = lower - none
    return counts


def _ones(plane: Words, mask: Words, masked: Words, ones: Packed) -> Counts:
    np.bitwise_and(plane, mask, out=masked)
    np.bitwise_count(masked, out=ones)
    total: Counts = ones.sum(axis=1, dtype=np.int64)
    return total
