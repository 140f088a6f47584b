"""Squared correlations of neighbouring SNPs from sums over samples, for LD pruning.

Which pairs are looked at is PLINK's --indep-pairwise: windows of `window` SNPs that begin every `step` SNPs of a
chromosome. For a pair (i, j) the correlation is over the founders in whom both genotypes are known. Beside sums of
single SNPs, which are known already, it takes of a pair
    cross = sum g_i g_j,   both = how many lack both,
    one_i, two_i = how many of those who lack j have one, two copies at i,   and one_j, two_j likewise,
each of which is 0 for certain where nobody's genotype is missing, and then takes no room at all (`structure.bits`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hanse_genomics.arrays import Array, Counts, Floats
from hanse_genomics.structure.bits import widths_of

FIELDS = ("cross", "both", "one_i", "two_i", "one_j", "two_j")
EPSILON = 2.0**-44
"""PLINK's SMALL_EPSILON, by which it widens comparisons of real numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """SNPs that pruning chooses from, in genome order.

    Attributes:
        index: int64 (C,): in the study's list.
        chromosome: int8 (C,).
        counts: int64 (C, 4): over the founders of all cohorts: with 0, 1, 2 copies of `first`, and missing.
    """

    index: Counts
    chromosome: Array
    counts: Counts

    def __len__(self) -> int:
        return len(self.index)

    @property
    def minor(self) -> Floats:
        """Minor allele frequency, float64 (C,)."""
        copies = self.counts[:, 1] + 2 * self.counts[:, 2]
        alleles = 2 * self.counts[:, :3].sum(axis=1)
        share: Floats = np.minimum(copies, alleles - copies) / alleles
        return share

    @property
    def varies(self) -> Array:
        """Whether a SNP has a variance: bool (C,). One of which everybody has one copy has none."""
        sums = self.counts[:, 1] + 2 * self.counts[:, 2]
        known = self.counts[:, :3].sum(axis=1)
        various: Array = known * (self.counts[:, 1] + 4 * self.counts[:, 2]) != sums * sums
        return various

    def arrays(self) -> dict[str, Array]:
        return {"index": self.index, "chromosome": self.chromosome, "counts": self.counts}

    @classmethod
    def read(cls, arrays: dict[str, Array]) -> Candidates:
        return cls(arrays["index"], arrays["chromosome"], arrays["counts"])


def reach(chromosome: Array, window: int, step: int) -> Counts:
    """The end of each SNP's partners, int64 (C,): those behind it that share a window with it are i+1 ... reach-1.

    Windows begin at every `step`-th SNP of a chromosome; the last one that has SNP i begins at or before i.
    """
    ends = np.append(np.flatnonzero(np.diff(chromosome)) + 1, len(chromosome))
    size = np.diff(ends, prepend=0)
    begin, end = np.repeat(ends - size, size), np.repeat(ends, size)
    at = np.arange(len(chromosome))
    reaches: Counts = np.maximum(np.minimum(begin + (at - begin) // step * step + window, end), at + 1)
    return reaches


def pairs(reaches: Counts, start: int, stop: int) -> tuple[Counts, Counts]:
    """Pairs (i, j) of SNPs i in [start, stop), ordered by i, then j: int64 (P,) each."""
    numbers = reaches[start:stop] - np.arange(start, stop) - 1
    i = np.repeat(np.arange(start, stop), numbers)
    j = i + 1 + np.arange(len(i)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
    return i, j


def widths(known: Candidates, i: Counts, j: Counts) -> Counts:
    """Bits of the sums of each pair, int64 (P * 6,): by pair, then as FIELDS.

    cross by Cauchy-Schwarz from the two SNPs' sums of squares; the others by the numbers of missing genotypes.
    """
    squares = (known.counts[:, 1] + 4 * known.counts[:, 2]).astype(np.float64)
    missing = known.counts[:, 3]
    cross = np.sqrt(squares[i] * squares[j]).astype(np.int64) + 1  # the root may have been rounded down
    without_i, without_j = missing[i], missing[j]
    largest = np.stack(
        [
            cross,
            np.minimum(without_i, without_j),
            np.minimum(known.counts[i, 1], without_j),
            np.minimum(known.counts[i, 2], without_j),
            np.minimum(known.counts[j, 1], without_i),
            np.minimum(known.counts[j, 2], without_i),
        ],
        axis=1,
    )
    return widths_of(largest.reshape(-1))


def correlated(known: Candidates, sums: Counts, i: Counts, j: Counts, r2: float) -> Array:
    """Which pairs have a squared correlation above r2: bool (P,).

    By the products of PLINK 1.9, in its order, so that the verdict is the same in the last bit.

    Args:
        sums: int64 (P, 6): totals of FIELDS.
    """
    founders = int(known.counts[0].sum()) if len(known) else 0
    c = known.counts.astype(np.float64)
    total, square = c[:, 1] + 2 * c[:, 2], c[:, 1] + 4 * c[:, 2]
    missing = known.counts[:, 3]
    cross, both, one_i, two_i, one_j, two_j = sums.T.astype(np.float64)
    n = founders - missing[i] - missing[j] + both
    x, y = total[i] - one_i - 2 * two_i, total[j] - one_j - 2 * two_j
    xx, yy = square[i] - one_i - 4 * two_i, square[j] - one_j - 4 * two_j
    covariance = cross * n - x * y
    spread_i, spread_j = xx * n - x * x, yy * n - y * y
    complete = (missing[i] == 0) & (missing[j] == 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        reciprocal = np.where(complete, (1.0 / spread_i) * (1.0 / spread_j), 1.0 / (spread_i * spread_j))
        verdict: Array = covariance * covariance * reciprocal > r2 * (1 + EPSILON)
    return verdict


def pair_sums(
    copies: Array, lacking: Array, reaches: Counts, start: int, stop: int, first: int, rows: int = 64
) -> Counts:
    """One cohort's sums of the pairs of SNPs i in [start, stop): int64 (P, 6) as FIELDS.

    Args:
        copies: float32 or float64 (S, n): copies of `first` in founders, 0 where missing, of SNPs first ... first+S-1,
            which are all that the pairs need. Sums are exact while 4 n is below 2^24 (float32), 2^53 (float64).
        lacking: of the same shape and type: 1 where the genotype is missing, else 0; empty (0, 0) where none is.
        rows: SNPs whose products are made at once.
    """
    made = []
    for begin in range(start, stop, rows):
        end = min(begin + rows, stop)
        i, j = pairs(reaches, begin, end)
        if not len(i):
            continue
        behind = int(reaches[begin:end].max())
        left = slice(begin - first, end - first)
        right = slice(begin - first, behind - first)
        at = (i - begin, j - begin)
        sums = np.zeros((len(i), len(FIELDS)), dtype=np.int64)
        sums[:, 0] = (copies[left] @ copies[right].T)[at]
        if len(lacking) and lacking[right].any():
            sums[:, 1] = (lacking[left] @ lacking[right].T)[at]
            for field, number in ((2, 1), (3, 2)):
                have = (copies[right] == number).astype(copies.dtype)
                sums[:, field] = (have[: end - begin] @ lacking[right].T)[at]
                sums[:, field + 2] = (lacking[left] @ have.T)[at]
        made.append(sums)
    return np.concatenate(made) if made else np.zeros((0, len(FIELDS)), dtype=np.int64)
