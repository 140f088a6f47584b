"""Meta-analysis of cohorts' effects by inverse variance: what studies do today when they may not pool their data.

Fixed effects: Cochran 1954. Random effects: DerSimonian and Laird 1986. Heterogeneity: Cochran's Q; I2 of Higgins and
Thompson 2002.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtr

from hanse_fabric.errors import invalid
from hanse_genomics.arrays import Counts, Floats

_LN10 = float(np.log(10.0))
_LN2 = float(np.log(2.0))


@dataclass(frozen=True, slots=True)
class Combined:
    """Effects over all cohorts; NaN where no cohort has one. All float64 (S,).

    Attributes:
        beta, se: the combined effect and its standard error.
        z: beta / se; p: two-sided; log10_p: of the same, also where p underflows.
    """

    beta: Floats
    se: Floats
    z: Floats
    p: Floats
    log10_p: Floats


@dataclass(frozen=True, slots=True)
class MetaAnalysis:
    """Of S SNPs.

    Attributes:
        fixed, random: by both models; with one cohort, both are that cohort's.
        cohorts: int64 (S,): how many have an effect.
        q: Cochran's Q, float64 (S,), chi-square with cohorts - 1 degrees of freedom under homogeneity.
        i2: share of the variation that is not chance, 0 to 1; tau2: variance between cohorts.
    """

    fixed: Combined
    random: Combined
    cohorts: Counts
    q: Floats
    i2: Floats
    tau2: Floats


def meta_analysis(betas: Floats, ses: Floats) -> MetaAnalysis:
    """Combine effects.

    Args:
        betas: effects (log odds ratios, slopes) of the same allele, float64 (K, S); NaN where a cohort has none.
        ses: their standard errors, (K, S); NaN, infinite or 0: the cohort does not count for that SNP.

    Raises:
        HanseError: INVALID_INPUT when shapes differ.
    """
    if betas.shape != ses.shape or betas.ndim != 2:
        raise invalid("ses", ses.shape, f"the betas' shape (cohorts, SNPs), {betas.shape}")
    there = np.isfinite(betas) & np.isfinite(ses) & (ses > 0)
    effects = np.where(there, betas, 0.0)
    variances = np.where(there, ses, 1.0) ** 2
    weights = np.where(there, 1.0 / variances, 0.0)
    count = there.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        fixed = _combined(effects, weights)
        q = np.where(count > 0, (weights * (effects - fixed.beta) ** 2).sum(axis=0), np.nan)
        scale = weights.sum(axis=0) - (weights**2).sum(axis=0) / weights.sum(axis=0)
        excess = np.maximum(q - (count - 1), 0.0)
        tau2 = np.where(count > 1, excess / scale, np.where(count == 1, 0.0, np.nan))
        i2 = np.where(q > 0, excess / q, np.where(count > 0, 0.0, np.nan))
        random = _combined(effects, np.where(there, 1.0 / (variances + tau2), 0.0))
    return MetaAnalysis(fixed, random, count.astype(np.int64), q, i2, tau2)


def _combined(effects: Floats, weights: Floats) -> Combined:
    total = weights.sum(axis=0)
    beta = (weights * effects).sum(axis=0) / total
    se = np.sqrt(1.0 / total)
    beta, se = np.where(total > 0, beta, np.nan), np.where(total > 0, se, np.nan)
    z = beta / se
    return Combined(beta, se, z, 2 * ndtr(-np.abs(z)), (log_ndtr(-np.abs(z)) + _LN2) / _LN10)
