"""What the regressions take from the genotype counts: which SNPs can be tested, and the sums of the genotypes
themselves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hanse_genomics.arrays import Array, Arrays, Floats
from hanse_genomics.hub.genotype_counts import GenotypeCounts, described
from hanse_genomics.reasons import Reason
from hanse_genomics.statistics.symmetric import blocks, bordered, cholesky
from hanse_schemas.study import Study

CORRELATED = 0.999
"""Correlation of two predictors above which PLINK gives NA."""


@dataclass(frozen=True, slots=True, eq=False)
class Genotypes:
    """Of the complete samples with a genotype: float64 (S,) each.

    Attributes:
        n: how many; first, second: sums of the copies (haploid people have 0 or 1) and of their squares.
    """

    n: Floats
    first: Floats
    second: Floats

    @property
    def variance(self) -> Floats:
        """n times the variance of the copies."""
        with np.errstate(invalid="ignore", divide="ignore"):
            made: Floats = np.where(self.n > 0, self.second - self.first**2 / self.n, 0.0)
        return made


def complete_statuses(study: Study, counted: GenotypeCounts) -> tuple[str, ...]:
    """The statuses in which the complete samples were counted."""
    if study.is_binary:
        both = ("complete_case", "complete_control")
        return both if counted.has("complete_case") else ("case", "control")
    return ("complete",) if counted.has("complete") else ("all",)


def genotypes(study: Study, counted: GenotypeCounts) -> Genotypes:
    """Sums of the copies of `first`."""
    statuses = complete_statuses(study, counted)
    none, one, two = counted.people(*statuses).T.astype(np.float64)
    # Two copies in the counts of haploid people are one.
    haploid = counted.haploid(*statuses)[:, 2].astype(np.float64)
    return Genotypes(none + one + two, one + 2 * two - haploid, one + 4 * two - 3 * haploid)


def prepared(study: Study, counted: GenotypeCounts, own: Genotypes, predictors: int) -> Arrays:
    """The results' columns that every regression has, with the reasons that the counts give.

    Args:
        predictors: of the model, intercept and SNP counted.
    """
    results = described(study, counted)
    results["nmiss"] = own.n.astype(np.int64)
    checks: list[tuple[Array, Reason]] = []
    if study.is_binary:
        cases, controls = (counted.people(status).sum(axis=1) for status in complete_statuses(study, counted))
        checks.append(((cases == 0) | (controls == 0), Reason.ONE_GROUP))
    checks += [(own.variance <= 0, Reason.MONOMORPHIC), (own.n <= predictors, Reason.FEW_SAMPLES)]
    for failed, code in checks:
        refuse(results, failed, code)
    return results


def refuse(results: Arrays, failed: Array, code: Reason) -> None:
    """Give the SNPs that fail a reason, unless they have one."""
    results["reason"] = np.where(failed & (results["reason"] == Reason.TESTED), np.uint8(code), results["reason"])


def collinear(frame: Arrays, inner: Floats, border: Floats, corner: Floats, vif: float) -> Array:
    """Whether PLINK would take the predictors for multicollinear, among the people whose genotype is there: bool (S,).

    Args:
        frame: of step `moments`.
        inner: (S, d, d): products of 1 and the covariates in the frame; border: (S, d): with the copies; corner: (S,).
        vif: largest variance inflation factor.
    """
    snps, q = len(inner), inner.shape[1] - 1
    if not q:
        return np.zeros(snps, dtype=bool)
    back = np.linalg.inv(frame["white"][:q, :q])
    return np.concatenate(
        [_collinear(back, inner[rows], border[rows], corner[rows], vif) for rows in blocks(snps, q + 1)]
    )


def _collinear(back: Floats, inner: Floats, border: Floats, corner: Floats, vif: float) -> Array:
    q = len(back)
    n = inner[:, 0, 0]
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = border[:, :1] / n[:, None]
        means = inner[:, 0, 1:] / n[:, None]
        inner = inner[:, 1:, 1:] - n[:, None, None] * means[:, :, None] * means[:, None, :]
        border = border[:, 1:] - n[:, None] * means * mean
        inner = np.einsum("ij,sjk,kl->sil", back.T, inner, back, optimize=True)
        spread = np.sqrt(np.einsum("sjj->sj", inner))
        inner = inner / (spread[:, :, None] * spread[:, None, :])
        border = (border @ back) / (spread * np.sqrt(corner - n * mean[:, 0] ** 2)[:, None])
    usable = np.isfinite(border).all(axis=1)
    inner[~usable], border[~usable] = np.eye(q), 0.0
    factors = cholesky(bordered(inner, border, np.ones(len(border))), 1e-10)
    inflation = np.einsum("sjj->sj", factors.inverse()).max(axis=1)
    dependent: Array = ~factors.definite | (inflation > vif) | (np.abs(border) > CORRELATED).any(axis=1) | ~usable
    return dependent
