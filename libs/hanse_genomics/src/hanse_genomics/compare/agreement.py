"""How well an analysis agrees with the pooled one, by the measures of Nasirigerdeh et al. (2022)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import invalid
from hanse_genomics.arrays import Floats

GENOME_WIDE = 5e-8


@dataclass(frozen=True, slots=True)
class PooledAgreement:
    """One analysis beside the pooled one.

    Attributes:
        snps: tested by both.
        pearson, spearman: correlation of -log10 p; NaN where one of them does not vary.
        largest: largest difference of -log10 p.
        significant: SNPs that the pooled analysis finds at `level`.
        found, missed, false: of those, found and not found by the other; found by the other alone.
        level: of significance.
    """

    snps: int
    pearson: float
    spearman: float
    largest: float
    significant: int
    found: int
    missed: int
    false: int
    level: float


def agreement(log10_p: Floats, pooled: Floats, level: float = GENOME_WIDE) -> PooledAgreement:
    """Compare p-values of the same SNPs.

    Args:
        log10_p, pooled: log10 p of both analyses, float64 (S,); NaN where a SNP was not tested, which counts as not
            significant.
        level: p-values up to it are significant.

    Raises:
        HanseError: INVALID_INPUT when they are of different SNPs.
    """
    if log10_p.shape != pooled.shape:
        raise invalid("log10_p", log10_p.shape, f"as many as pooled has, {pooled.shape}")
    both = np.isfinite(log10_p) & np.isfinite(pooled)
    x, y = -log10_p[both], -pooled[both]
    bar = np.log10(level)
    mine: NDArray[np.bool_] = np.nan_to_num(log10_p, nan=0.0) <= bar
    theirs: NDArray[np.bool_] = np.nan_to_num(pooled, nan=0.0) <= bar
    return PooledAgreement(
        snps=int(both.sum()),
        pearson=_correlation(x, y),
        spearman=_correlation(_ranks(x), _ranks(y)),
        largest=float(np.abs(x - y).max()) if len(x) else float("nan"),
        significant=int(theirs.sum()),
        found=int((mine & theirs).sum()),
        missed=int((theirs & ~mine).sum()),
        false=int((mine & ~theirs).sum()),
        level=level,
    )


def bonferroni(snps: int) -> float:
    """The level of a single test at which a family of `snps` tests errs with probability 0.05 at most."""
    return 0.05 / max(snps, 1)


def _ranks(values: Floats) -> Floats:
    """From 1 on; equal values have the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return ranks


def _correlation(x: Floats, y: Floats) -> float:
    if len(x) < 2:
        return float("nan")
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((x @ x) * (y @ y)))
    return float(np.clip((x @ y) / scale, -1.0, 1.0)) if scale > 0 else float("nan")
