"""A cohort's standardised genotypes times vectors, in tiles of SNPs, so that they never lie in memory as numbers.

X (M, n) = (g - mean) * scale by SNP, 0 where the genotype is missing [Patterson, Price, Reich 2006]. Tiles have TILE
SNPs whatever else is chosen, so that sums have the same order and the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from hanse_genomics.arrays import Floats, Packed
from hanse_genomics.genotypes import dosages, missing, room
from hanse_genomics.structure.panel import Panel
from hanse_schemas.study import TILE

Read = Callable[[int, int], Packed]
"""Packed genotypes of the panel's SNPs [start, stop)."""


def across(panel: Panel, read: Read, samples: int, vectors: Floats) -> Floats:
    """X^T V at this cohort's samples: float64 (n, b).

    Args:
        vectors: float64 (M, b).
    """
    made = np.zeros((samples, vectors.shape[1]))
    for rows, tile in _tiles(panel, read, samples):
        made += tile.T @ vectors[rows]
    return made


def image(panel: Panel, read: Read, samples: int, vectors: Floats) -> Floats:
    """X X^T V, this cohort's part: float64 (M, b)."""
    scores = across(panel, read, samples, vectors)
    made = np.empty_like(vectors)
    for rows, tile in _tiles(panel, read, samples):
        made[rows] = tile @ scores
    return made


def _tiles(panel: Panel, read: Read, samples: int) -> Iterator[tuple[slice, Floats]]:
    """Rows and X of each tile; the buffer is used again, so a tile is gone when the next is asked for."""
    buffer = room(min(TILE, len(panel)), samples)
    for start in range(0, len(panel), TILE):
        stop = min(start + TILE, len(panel))
        packed = read(start, stop)
        tile = dosages(packed, samples, out=buffer)
        tile -= panel.mean[start:stop, None]
        tile *= panel.scale[start:stop, None]
        tile[missing(packed, samples)] = 0.0
        yield slice(start, stop), tile
