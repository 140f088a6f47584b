"""p-values: survival functions, never 1 - cdf, which loses small ones, and log10 p where p itself underflows."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from hanse_genomics.arrays import Floats

_LN10 = math.log(10.0)
_SERIES_BELOW = 1e-200
"""Below it a p-value of Student's t is summed as a series, which does not underflow."""


def chi_square(statistic: Floats) -> tuple[Floats, Floats]:
    """p and log10 p of chi-square statistics with 1 df; NaN stays NaN."""
    root = np.sqrt(statistic)
    return special.erfc(root / math.sqrt(2.0)), (special.log_ndtr(-root) + math.log(2.0)) / _LN10


def normal(z: Floats) -> tuple[Floats, Floats]:
    """p and log10 p of standard normal statistics, two-sided."""
    size = np.abs(z)
    return special.erfc(size / math.sqrt(2.0)), (special.log_ndtr(-size) + math.log(2.0)) / _LN10


def student(t: Floats, df: Floats) -> tuple[Floats, Floats]:
    """p and log10 p of Student's t with df degrees of freedom, two-sided; NaN where df < 1."""
    df = np.where(df >= 1, df, np.nan)
    p: Floats = 2.0 * special.stdtr(df, -np.abs(t))
    with np.errstate(divide="ignore"):
        log10_p = np.log10(p)
    deep = np.flatnonzero(p < _SERIES_BELOW)
    if len(deep):
        log10_p[deep] = _log10_student(t[deep], df[deep])
        p[deep] = 10.0 ** log10_p[deep]
    return p, log10_p


def _log10_student(t: Floats, df: Floats) -> Floats:
    """p = I_x(df/2, 1/2), x = df / (df + t^2) = x^a (1-x)^b / (a B(a, b)) * sum_n prod_k<n (a+b+k)/(a+1+k) x
    (Abramowitz and Stegun 26.5.4), whose terms are positive and fall at least like x^n.
    """
    with np.errstate(over="ignore"):
        ratio = (t / np.sqrt(df)) ** 2
    finite = np.isfinite(ratio)
    ratio = np.where(finite, ratio, 1.0)
    a, x = df / 2.0, 1.0 / (1.0 + ratio)
    term = np.ones_like(x)
    total = np.ones_like(x)
    for n in range(100_000):
        term = term * x * (a + 0.5 + n) / (a + 1.0 + n)
        total += term
        if (term <= total * 1e-17).all():
            break
    logarithm = -a * np.log1p(ratio) - 0.5 * np.log1p(1.0 / ratio) - np.log(a) - special.betaln(a, 0.5) + np.log(total)
    return np.where(finite, logarithm / _LN10, -np.inf)
