"""The hub's steps `chi_square` and `trend`: a chunk's results of its genotype counts."""

from __future__ import annotations

import numpy as np

from hanse_genomics.arrays import Array, Arrays, Counts, Given
from hanse_genomics.hub.genotype_counts import GenotypeCounts, counted_genotypes, described, turned
from hanse_genomics.hub.step import Finished, HubStep
from hanse_genomics.reasons import Reason
from hanse_genomics.statistics import allelic, tails
from hanse_privacy.joint import Settings
from hanse_schemas.study import Study


def chi_square(study: Study, settings: Settings, total: Arrays, given: Given) -> Finished:
    """The allelic test, as PLINK's --assoc.

    Returns:
        output `results`; facts: none.
    """
    counted = counted_genotypes(study, settings, total["counts"])
    results, table = _described(study, counted, counted.alleles("case"), counted.alleles("control"))
    tested = allelic.chi_square(table)
    reason = _tested(results["reason"], table)
    passed = ~np.isin(reason, (Reason.MAF, Reason.MISSING, Reason.HARDY_WEINBERG))
    chisq = np.where(passed, tested.chisq, np.nan)
    p, log10_p = tails.chi_square(chisq)
    results |= {
        "reason": reason, "f_a": tested.f_a, "f_u": tested.f_u, "chisq": chisq, "p": p, "log10_p": log10_p,
        "odds_ratio": np.where(passed, tested.odds_ratio, np.nan), "se": np.where(passed, tested.se, np.nan),
    }  # fmt: skip
    return Finished({"results": results})


def trend(study: Study, settings: Settings, total: Arrays, given: Given) -> Finished:
    """The Cochran-Armitage test, as PLINK's --model has it: TREND; on X of women alone, not on Y and MT.

    Returns:
        output `results`.
    """
    counted = counted_genotypes(study, settings, total["counts"])
    cases, controls = (counted.people(status) - counted.haploid(status) for status in ("case", "control"))
    haploid = counted.ploidy in ("y", "mt")
    of_cases, of_controls = (
        counted.alleles(status) if haploid else np.stack([people @ (0, 1, 2), people @ (2, 1, 0)], axis=1)
        for status, people in (("case", cases), ("control", controls))
    )
    results, table = _described(study, counted, of_cases, of_controls)
    if counted.ploidy == "x":
        results["nmiss"] = (cases + controls).sum(axis=1)
    reason = _tested(results["reason"], table)
    if haploid:
        reason[reason == Reason.TESTED] = Reason.HAPLOID
    chisq = np.where(reason == Reason.TESTED, allelic.trend(cases, controls), np.nan)
    reason[(reason == Reason.TESTED) & np.isnan(chisq)] = Reason.MONOMORPHIC
    p, log10_p = tails.chi_square(chisq)
    results |= {"reason": reason, "chisq": chisq, "p": p, "log10_p": log10_p}
    return Finished({"results": results})


def _described(study: Study, counted: GenotypeCounts, of_cases: Counts, of_controls: Counts) -> tuple[Arrays, Counts]:
    """What every test tells, with `counts`: int64 (S, 4), A1 and A2 in cases, A1 and A2 in controls.

    Args:
        of_cases, of_controls: int64 (S, 2): `first` and `second` alleles that are tested.
    """
    results = described(study, counted)
    table = np.concatenate([turned(of_cases, results["minor"]), turned(of_controls, results["minor"])], axis=1)
    results["nmiss"] = counted.people("case", "control").sum(axis=1)
    results["counts"] = table
    return results, table


def _tested(reason: Array, table: Counts) -> Array:
    """Reasons with those of the test itself."""
    t, q, r, s = table.T
    for failed, code in (
        ((t + q == 0) | (r + s == 0), Reason.ONE_GROUP),
        ((t + r == 0) | (q + s == 0), Reason.MONOMORPHIC),
    ):
        reason = np.where(failed & (reason == Reason.TESTED), np.uint8(code), reason)
    return reason


STEPS: dict[str, HubStep] = {"chi_square": chi_square, "trend": trend}
