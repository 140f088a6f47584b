"""Genotype counts by group of samples, on packed bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hanse_genomics.arrays import Counts, Packed, PackedRows
from hanse_genomics.genotypes.packed import LOW, Words, tile_of, tiles, words_of


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


def count(packed: Packed | PackedRows, groups: Groups) -> Counts:
    """Genotype counts.

    Of a genotype's bits, 11 is no copy, both lower and upper bit; 01 is missing, 10 one copy; so three counts of bits
    (lower, upper, both) give the four numbers.

    Args:
        packed: uint8 (S, ceil(n/4)); read tile by tile where it lies in a file.

    Returns:
        int64 (S, G, 4): samples of the group with 0, 1, 2 copies of A1, and with a missing genotype.
    """
    snps, wide = tile_of(groups.samples), groups.masks.shape[1]
    counts = np.empty((len(packed), len(groups.sizes), 4), dtype=np.int64)
    planes, masked = (np.zeros((3, snps, wide), dtype="<u8") for _ in range(2))
    ones = np.empty(planes.shape, dtype=np.uint8)
    # Sums of bits as a product with a vector of ones: BLAS adds several times faster than numpy does, and whole numbers
    # below 2^24 exactly.
    numbers = np.empty(planes.shape, dtype=np.float32 if groups.samples < 1 << 24 else np.float64)
    add = np.ones(wide, dtype=numbers.dtype)
    for rows, words in tiles(packed, groups.samples):
        n = len(words)
        lower, upper, both = planes[:, :n]
        np.bitwise_and(words, LOW, out=lower)
        np.right_shift(words, np.uint64(1), out=upper)
        upper &= LOW
        np.bitwise_and(lower, upper, out=both)
        for at, mask in enumerate(groups.masks):
            np.bitwise_and(planes, mask, out=masked)
            np.bitwise_count(masked, out=ones)
            np.copyto(numbers, ones)
            low, high, none = (numbers.reshape(-1, wide) @ add).astype(np.int64).reshape(3, -1)[:, :n]
            out = counts[rows, at]
            out[:, 0] = none
            out[:, 1] = high - none
            out[:, 2] = groups.sizes[at] - low - high + none
            out[:, 3] = low - none
    return counts
