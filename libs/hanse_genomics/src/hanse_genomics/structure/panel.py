"""The SNPs that components are made of, and what is known of them before the first round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hanse_genomics.arrays import Array, Counts, Floats
from hanse_genomics.groups import AUTOSOMES
from hanse_genomics.structure.linkage import EPSILON, Candidates


def candidates(
    chromosome: Array, founders: Counts, everybody: Counts, *, maf: float, missing: float, start: int = 0
) -> Candidates:
    """Autosomal SNPs that vary and have a minor allele and genotypes enough, as PLINK's --autosome --maf --geno.

    Args:
        chromosome: (S,) codes of the study's SNPs.
        founders: int64 (A, 4): with 0, 1, 2 copies, and missing, of the study's SNPs from `start` on.
        everybody: int64 (A, 4): the same over all samples.
        maf: smallest minor allele frequency among founders; missing: largest share of missing genotypes.
    """
    here = chromosome[start : start + len(founders)]
    usable = np.flatnonzero((here >= 1) & (here <= AUTOSOMES) & (founders[:, :3].sum(axis=1) > 0))
    minor = Candidates(usable, here[usable], founders[usable]).minor
    share = everybody[usable, 3] / everybody[usable].sum(axis=1)
    frequent = (minor > 0) & (minor >= maf * (1 - EPSILON))
    chosen = usable[frequent & (share <= missing * (1 + EPSILON))]
    return Candidates(chosen + start, here[chosen], founders[chosen])


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """The SNPs that components are made of.

    Attributes:
        index: int64 (M,): in the study's list, ascending.
        mean: float64 (M,): 2p; scale: float64 (M,): 1 / sqrt(2p(1-p)); p is the frequency of `first` among founders.
    """

    index: Counts
    mean: Floats
    scale: Floats

    def __len__(self) -> int:
        return len(self.index)

    def arrays(self) -> dict[str, Array]:
        return {"index": self.index, "mean": self.mean, "scale": self.scale}

    @classmethod
    def read(cls, arrays: dict[str, Array]) -> Panel:
        return cls(arrays["index"], arrays["mean"], arrays["scale"])

    @classmethod
    def of(cls, chosen: Candidates) -> Panel:
        mean = (chosen.counts[:, 1] + 2 * chosen.counts[:, 2]) / chosen.counts[:, :3].sum(axis=1)
        return cls(chosen.index, mean, 1 / np.sqrt(mean * (1 - mean / 2)))

    def squares(self, everybody: Counts) -> Floats:
        """Each SNP's sum of squared standardised genotypes, float64 (M,).

        Args:
            everybody: int64 (M, 4): counts over all samples, founders or not.
        """
        deviations = (np.arange(3) - self.mean[:, None]) * self.scale[:, None]
        total: Floats = (everybody[:, :3] * deviations**2).sum(axis=1)
        return total
