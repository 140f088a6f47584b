"""Genotype counts over all cohorts: frequencies, missing genotypes, Hardy-Weinberg, A1, quality control.

Conventions are PLINK's: A1 is the rarer allele among founders; a man's X, anybody's MT and a man's Y count one allele
each, and a heterozygous genotype there is not used; Hardy-Weinberg is judged by founders, by the controls among
them where the phenotype is binary, and on X by those who are not male.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hanse_genomics.arrays import Array, Arrays, Counts, Floats
from hanse_genomics.reasons import Reason
from hanse_genomics.statistics import hardy_weinberg
from hanse_privacy.joint import Settings
from hanse_schemas.study import QualityControl, Study

_EPSILON = 2.0**-44
"""Thresholds are met within it, as PLINK's are."""


@dataclass(frozen=True, slots=True, eq=False)
class GenotypeCounts:
    """Counts of a chunk's SNPs.

    Attributes:
        by_group: int64 (S, 3) by group: 0, 1, 2 copies of `first`.
        sizes: samples by group.
        ploidy: of the chunk: diploid, x, y, mt.
        binary: whether the phenotype is.
    """

    by_group: dict[str, Counts]
    sizes: Mapping[str, int]
    ploidy: str
    binary: bool

    def has(self, status: str) -> bool:
        """Whether a status was counted."""
        return status in self.by_group or f"{status}/male" in self.by_group

    def people(self, *statuses: str) -> Counts:
        """Samples with 0, 1, 2 copies summed over statuses; a haploid one has 0 or 2: int64 (S, 3)."""
        total = np.zeros((self._snps, 3), dtype=np.int64)
        for group in self._groups(statuses):
            counted = self.by_group[group]
            total[:, 0] += counted[:, 0]
            total[:, 2] += counted[:, 2]
            if not self._haploid(group):
                total[:, 1] += counted[:, 1]
        return total

    def haploid(self, *statuses: str) -> Counts:
        """The haploid ones among `people`: int64 (S, 3)."""
        total = np.zeros((self._snps, 3), dtype=np.int64)
        for group in self._groups(statuses):
            if self._haploid(group):
                total[:, ::2] += self.by_group[group][:, ::2]
        return total

    def alleles(self, *statuses: str, diploid: bool = False) -> Counts:
        """`first` and `second` alleles summed over statuses: int64 (S, 2).

        Args:
            diploid: count everybody as diploid.
        """
        total = np.zeros((self._snps, 2), dtype=np.int64)
        for group in self._groups(statuses):
            none, one, two = self.by_group[group].T
            if self._haploid(group) and not diploid:
                total += np.stack([two, none], axis=1)
            else:
                total += np.stack([2 * two + one, 2 * none + one], axis=1)
        return total

    def size(self, *statuses: str) -> int:
        """Samples of statuses."""
        return sum(self.sizes[group] for group in self._groups(statuses))

    def missing(self) -> Floats:
        """Share of samples without a genotype; a heterozygous one of a man's X is there, though it is not used."""
        everybody = self._everybody()
        size = self.size(*everybody)
        present = sum(self.by_group[group].sum(axis=1) for group in self._groups(everybody))
        return 1.0 - present / size if size else np.ones(self._snps)

    def founders(self) -> tuple[str, ...]:
        """The statuses that founders were counted in; everybody where there is no founder with a genotype."""
        everybody = self._everybody()
        if not self.has("founder") and not self.has("founder_case"):
            return everybody
        chosen = ("founder",) if not self.binary else tuple(f"founder_{status}" for status in everybody)
        return chosen if self.size(*chosen) else everybody

    def hardy_weinberg(self) -> Floats:
        """Exact p: float64 (S,), NaN on Y and MT."""
        if self.ploidy in ("y", "mt"):
            return np.full(self._snps, np.nan)
        judged = self.founders()
        if self.binary:
            judged = tuple(status for status in judged if status.endswith("control"))
        total = np.zeros((self._snps, 3), dtype=np.int64)
        for group in self._groups(judged):
            if not self._haploid(group):
                total += self.by_group[group]
        return hardy_weinberg.exact(total[:, 1], total[:, 0], total[:, 2])

    @property
    def _snps(self) -> int:
        return len(next(iter(self.by_group.values())))

    def _everybody(self) -> tuple[str, ...]:
        if not self.binary:
            return ("all",)
        return ("case", "control", "other") if self.has("other") else ("case", "control")

    def _haploid(self, group: str) -> bool:
        return self.ploidy in ("y", "mt") or (self.ploidy == "x" and group.endswith("/male"))

    def _groups(self, statuses: tuple[str, ...]) -> list[str]:
        return [group for group in self.by_group if group.partition("/")[0] in statuses]


def counted_genotypes(study: Study, settings: Settings, counts: Counts) -> GenotypeCounts:
    """The counts of a chunk.

    Args:
        settings: `groups`, `sizes` and `ploidy` of the chunk.
        counts: int64 (S, G, 3): the cohorts' sum.
    """
    groups = settings["groups"]
    return GenotypeCounts(
        by_group={group: np.ascontiguousarray(counts[:, at]) for at, group in enumerate(groups)},
        sizes=dict(zip(groups, settings["sizes"], strict=True)),
        ploidy=settings["ploidy"],
        binary=study.is_binary,
    )


def described(study: Study, counted: GenotypeCounts) -> Arrays:
    """What every test tells of a SNP beside its own result.

    Returns:
        minor uint8 (0: the study's first allele is A1), maf, missing, hwe_p float64, reason uint8: quality control's.
    """
    # PLINK's frequencies on MT are those of genotypes, its tests' those of haploid people.
    alleles = counted.alleles(*counted.founders(), diploid=counted.ploidy == "mt")
    # Where both alleles are as frequent, the alphabetically first is A1: the first.
    minor = (alleles[:, 1] < alleles[:, 0]).astype(np.uint8)
    total = alleles.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        maf = np.where(total > 0, alleles.min(axis=1) / total, np.nan)
    missing, hwe_p = counted.missing(), counted.hardy_weinberg()
    return {
        "minor": minor,
        "maf": maf,
        "missing": missing,
        "hwe_p": hwe_p,
        "reason": _quality(study.quality, maf, missing, hwe_p),
    }


def turned(counts: Counts, minor: Array) -> Counts:
    """Counts by copies of `first` (or of `first` and `second`), by copies of A1 (A1 and A2), in this order reversed
    where `second` is A1.
    """
    return np.where(minor[:, None] == 1, counts[:, ::-1], counts)


def _quality(quality: QualityControl, maf: Floats, missing: Floats, hwe_p: Floats) -> Array:
    reason = np.zeros(len(maf), dtype=np.uint8)
    with np.errstate(invalid="ignore"):
        rare = maf < quality.maf * (1 - _EPSILON)
        disequilibrium = hwe_p < quality.hardy_weinberg * (1 - _EPSILON)
        absent = missing > quality.missing * (1 + _EPSILON)
    # PLINK's order: the reason that is told is the first.
    for failed, code in ((rare, Reason.MAF), (disequilibrium, Reason.HARDY_WEINBERG), (absent, Reason.MISSING)):
        reason[failed] = code
    return reason
