"""Packed genotypes as 64-bit words of 32 samples, and the exchange of the two alleles.

Everything is done in tiles of some SNPs, so few that the passes over a tile stay in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hanse_genomics.arrays import Packed, PackedRows
from hanse_schemas.study import TILE

Words = NDArray[np.uint64]

PER_WORD = 32
_TILE_WORDS = 20_480
LOW = np.uint64(0x5555_5555_5555_5555)
"""The lower bit of each genotype."""


def words_of(samples: int) -> int:
    """64-bit words of a SNP."""
    return -(-samples // PER_WORD)


def tile_of(samples: int) -> int:
    """SNPs of a tile: about 160 KB of them, one at least."""
    return max(1, min(TILE, _TILE_WORDS // max(words_of(samples), 1)))


def tiles(packed: Packed | PackedRows, samples: int) -> Iterator[tuple[slice, Words]]:
    """Tiles of at most `tile_of(samples)` SNPs as words: (rows of the tile, uint64 (rows, W)).

    The words are one buffer that is used again for the next tile. Bytes beyond a row's end are 0; bits of samples that
    do not exist are as they lie in the file.
    """
    snps = tile_of(samples)
    buffer = np.zeros((snps, words_of(samples)), dtype="<u8")
    octets = buffer.view(np.uint8)
    for start in range(0, len(packed), snps):
        rows = slice(start, min(start + snps, len(packed)))
        tile = packed[rows]
        octets[: len(tile), : packed.shape[1]] = tile
        yield rows, buffer[: len(tile)]


def swap(packed: Packed, rows: NDArray[np.bool_]) -> None:
    """Exchange the alleles of some SNPs, in place: two copies of A1 become none, none two; missing stays missing.

    Args:
        packed: uint8 (S, ceil(n/4)); rows: bool (S,).
    """
    for start in range(0, len(packed), TILE):
        which = np.flatnonzero(rows[start : start + TILE]) + start
        if len(which):
            tile = packed[which]
            # 00 and 11 have equal bits and are inverted; 01 and 10 have not.
            alike = tile >> 1
            alike ^= tile
            np.bitwise_not(alike, out=alike)
            alike &= 0x55
            tile ^= alike
            alike <<= 1
            tile ^= alike
            packed[which] = tile
