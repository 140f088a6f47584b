"""Tests on tables of counts: the allelic chi-square test and the Cochran-Armitage trend test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hanse_genomics.arrays import Counts, Floats


@dataclass(frozen=True, slots=True, eq=False)
class Allelic:
    """What PLINK's --assoc tells of SNPs: float64 (S,) each, NaN where it is not defined.

    Attributes:
        f_a, f_u: frequency of A1 in cases, in controls.
        chisq: 1 df.
        odds_ratio, se: of A1, and the standard error of its logarithm.
    """

    f_a: Floats
    f_u: Floats
    chisq: Floats
    odds_ratio: Floats
    se: Floats


def chi_square(table: Counts) -> Allelic:
    """The allelic test.

    Args:
        table: int64 (S, 4): t, q, r, s: A1 in cases, A2 in cases, A1 in controls, A2 in controls.

    Source: Nasirigerdeh et al., 2022, equations (1) and (2). The statistic is computed as
    N (ts - qr)^2 / (the product of the margins): the same number, without an expected count that could be 0.
    """
    t, q, r, s = (table[:, at].astype(np.float64) for at in range(4))
    with np.errstate(divide="ignore", invalid="ignore"):
        chisq = _per((t * s - q * r) ** 2, (t + q) * (r + s), (t + r) * (q + s), t + q + r + s)
        odds_ratio = np.where(q * r > 0, t * s / (q * r), np.nan)
        smallest = table.min(axis=1)
        se = np.where(smallest > 0, np.sqrt(1 / t + 1 / q + 1 / r + 1 / s), np.nan)
        return Allelic(_ratio(t, t + q), _ratio(r, r + s), chisq, odds_ratio, se)


def trend(cases: Counts, controls: Counts) -> Floats:
    """The Cochran-Armitage statistic with weights 0, 1, 2 and 1 df: float64 (S,), NaN where it is not defined.

    Args:
        cases, controls: int64 (S, 3): samples with 0, 1, 2 copies of an allele (whichever: the test is symmetric).

    Source: Armitage 1955; N (N sum r x - R sum n x)^2 / (R (N - R) (N sum n x^2 - (sum n x)^2)), as in PLINK's --model.
    """
    both = (cases + controls).astype(np.float64)
    of_cases = cases.astype(np.float64)
    n, cases_n = both.sum(axis=1), of_cases.sum(axis=1)
    first = both[:, 1] + 2 * both[:, 2]
    second = both[:, 1] + 4 * both[:, 2]
    first_cases = of_cases[:, 1] + 2 * of_cases[:, 2]
    with np.errstate(divide="ignore", invalid="ignore"):
        return _per((n * first_cases - cases_n * first) ** 2, cases_n * (n - cases_n), n * second - first**2, n)


def _per(square: Floats, one: Floats, other: Floats, n: Floats) -> Floats:
    """square * n / (one * other), NaN where a margin is 0: products of four counts stay within a float64's range."""
    defined = (one > 0) & (other > 0)
    made: Floats = np.where(defined, square / one * n / other, np.nan)
    return made


def _ratio(part: Floats, whole: Floats) -> Floats:
    return np.where(whole > 0, part / whole, np.nan)
