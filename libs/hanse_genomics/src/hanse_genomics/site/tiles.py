"""A chunk's genotypes as numbers, piece by piece of a tile, for regressions.

Tiles are computed alone, and cut alike: no number depends on which other tiles are computed with it, so that results
are the same bits however the study is cut into chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hanse_genomics.arrays import Counts, Floats, Packed, PackedRows
from hanse_genomics.genotypes import dosages, missing, room
from hanse_genomics.site.samples import Members, members
from hanse_genomics.site.step import SiteStudy
from hanse_schemas.study import TILE

_LEAST, _NUMBERS = 4, 1 << 15
"""SNPs of a piece at least; numbers of it, about: what is made of them has several such arrays."""


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """Some SNPs of a tile.

    Attributes:
        rows: int64 (T,): their places in the chunk.
        copies: float64 (T, n4): copies of the study's first allele; 0 where missing, and of samples beyond the last;
            haploid people have 0 or 1. A view of a buffer that the next piece overwrites.
        snp, person: int64 (M,): which genotypes are missing, by place in the piece and by sample; ordered by SNP.
    """

    rows: Counts
    copies: Floats
    snp: Counts
    person: Counts

    def without_missing(self, whole: Floats, of_sample: Floats) -> Floats:
        """Sums over the samples whose genotype is there: (T, k).

        Args:
            whole: (k,): sums over all samples; of_sample: (n4, k): what each of them adds.
        """
        sums = np.tile(whole, (len(self.rows), 1))
        starts = np.searchsorted(self.snp, np.arange(len(self.rows) + 1))
        some = np.flatnonzero(np.diff(starts))
        if len(some):
            sums[some] -= np.add.reduceat(of_sample[self.person], starts[some], axis=0)
        return sums


def width(samples: int) -> int:
    """n4: samples, rounded up to whole bytes of a .bed file."""
    return 4 * -(-samples // 4)


def cut(samples: int) -> int:
    """SNPs that are numbers at a time, of so many samples: a tile's whole would not stay in a core's cache."""
    return max(_LEAST, min(TILE, _NUMBERS // max(width(samples), 1)))


def tiles(site: SiteStudy, packed: PackedRows, ploidy: str, absent: NDArray[np.bool_], rows: Counts) -> Iterator[Tile]:
    """The tiles of a chunk, in pieces of `cut(samples)` SNPs.

    Args:
        packed: the chunk's genotypes, read tile by tile; its first SNP begins a tile.
        absent: bool (n4,): samples that are not in the sums; they have no copies and are never missing.
        rows: which SNPs of the chunk are wanted, ascending.
    """
    samples = site.cohort.samples
    haploid, beside = _haploid(site, ploidy)
    height = cut(samples)
    buffer = room(min(height, len(rows)), samples)
    out = np.flatnonzero(absent)
    for start in range(0, len(packed), TILE):
        low, high = np.searchsorted(rows, (start, start + TILE))
        wanted = rows[low:high]
        if not len(wanted):
            continue
        some = packed[wanted]
        if haploid is not None:
            _without(some, haploid, beside)
        snp, person = missing(some, samples)
        if len(out):
            here = ~absent[person]
            snp, person = snp[here], person[here]
        for top in range(0, len(wanted), height):
            copies = dosages(some[top : top + height], width(samples), out=buffer)
            if haploid is not None:
                copies[:, haploid] *= 0.5
            if len(out):
                copies[:, out] = 0.0
            first, last = np.searchsorted(snp, (top, top + height))
            yield Tile(wanted[top : top + height], copies, snp[first:last] - top, person[first:last])


def _haploid(site: SiteStudy, ploidy: str) -> tuple[Members | None, Members]:
    """Who is haploid, None where nobody is; and who does not have the chromosome: bool (n4,)."""
    samples = site.cohort.samples
    haploid, beside = np.zeros(width(samples), dtype=bool), np.zeros(width(samples), dtype=bool)
    if ploidy == "diploid":
        return None, beside
    haploid[:samples] = True if ploidy == "mt" else members(site, "all/male")
    if ploidy == "y":
        beside[:samples] = ~haploid[:samples]
    return haploid, beside


def _without(packed: Packed, haploid: Members, beside: Members) -> None:
    """Make heterozygous genotypes of haploid people missing (10 becomes 01), and all of people beside it, in place."""
    heterozygous = (packed >> 1) & ~packed & _lower_bits(haploid)
    packed ^= heterozygous | heterozygous << 1
    away = _lower_bits(beside)
    packed |= away
    packed &= ~(away << 1)


def _lower_bits(people: Members) -> Packed:
    return np.packbits(np.repeat(people, 2) & np.tile([True, False], len(people)), bitorder="little")
