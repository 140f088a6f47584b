"""The hub's steps of logistic regressions: which SNPs go on, and the results of those that are done.

The method is that of Nasirigerdeh et al. (2022, equations (15) to (25)).
A SNP's Newton iterations end when the next step would change neither its coefficient nor its standard error in their
first nine digits, so that they are those of a regression that is run to its end; PLINK stops at four.
"""

from __future__ import annotations

import numpy as np

from hanse_genomics.arrays import Array, Arrays, Floats, Given
from hanse_genomics.hub.chunk_state import fail, next_iteration, state_and_results
from hanse_genomics.hub.complete import Genotypes, collinear, complete_statuses, genotypes, prepared, refuse
from hanse_genomics.hub.firth import firth_next
from hanse_genomics.hub.genotype_counts import GenotypeCounts, counted_genotypes
from hanse_genomics.hub.linear import columns_of
from hanse_genomics.hub.newton import Step, newton
from hanse_genomics.hub.step import Finished, HubStep
from hanse_genomics.reasons import Reason
from hanse_genomics.statistics.symmetric import packed_size, unpacked
from hanse_privacy.joint import Settings
from hanse_schemas.study import Study

SHORT = 1e-5
"""Length of a step, in standard errors, after which the coefficient is right: the error is about its square."""
SETTLED = 1e-9
"""Relative change of a standard error, at the next step, that is none."""
ENDLESS = 15.0
"""Logarithm of an odds ratio that no data have: the coefficient goes to infinity."""


def logistic_first(study: Study, settings: Settings, total: Arrays, given: Given) -> Finished:
    """The step from the model of covariates alone.

    Args:
        total: `counts`, `sums`, `present`; given: `frame`, `null`.

    Returns:
        outputs `betas` (to the sites) and `state`, or `results` where nothing is left to do; facts `next`: logistic,
        firth or done, and `active`.
    """
    counted = counted_genotypes(study, settings, total["counts"])
    own = genotypes(study, counted)
    frame = given["frame"]
    q = columns_of(frame, settings["ploidy"])
    d = q + 1
    results = prepared(study, counted, own, d + 1)
    border = np.column_stack([own.first, total["sums"][:, packed_size(d) + 2 * d + 2 :]])
    refuse(results, collinear(frame, _covariates(total, own, d), border, own.second, study.vif), Reason.COLLINEAR)
    snps = len(own.n)
    blank = np.full(snps, np.nan)
    results |= {
        "beta": blank,
        "se": blank.copy(),
        "iterations": np.zeros(snps),
        "firth": np.zeros(snps, dtype=np.uint8),
    }
    on_x = settings["ploidy"] == "x" and bool(frame["x_sex"][0])
    start = np.append(given["null"]["x_coefficients" if on_x else "coefficients"], 0.0)
    testable = results["reason"] == Reason.TESTED
    if study.firth != "always":
        refuse(results, _separated(study, counted), Reason.SEPARATION)
    rows = np.flatnonzero(results["reason"] == Reason.TESTED)
    step = newton(total["sums"][rows], np.tile(start, (len(rows), 1)), inverse=study.firth == "always")
    if study.firth == "always":
        keep = step.definite
        fail(results, rows[~keep], Reason.COLLINEAR)
        betas = {"rows": rows[keep], "coefficients": step.coefficients[keep], "inverse": step.inverse[keep]}
        return firth_next(betas, {}, results)
    state: Arrays = {"rows": rows, "start": start, "waiting": np.zeros(0, dtype=np.int64)}
    if study.firth == "fallback":
        state["waiting"] = np.flatnonzero(testable & (results["reason"] == Reason.SEPARATION))
    return _proceed(study, 0, step, state, np.full(len(rows), np.inf), results)


def _covariates(total: Arrays, own: Genotypes, d: int) -> Floats:
    """Products of 1 and the covariates over the people whose genotype is there: (S, d, d)."""
    if "present" in total:
        return unpacked(np.column_stack([own.n, total["present"]]), d)
    # A site of release 0.1.0 does not tell them: in the frame, all people together have mean 0 and variance 1.
    return own.n[:, None, None] * np.eye(d)


def logistic(study: Study, settings: Settings, total: Arrays, given: Given) -> Finished:
    """A Newton step of the SNPs that have not converged.

    Args:
        total: `sums`; given: `betas`, `state`.

    Returns:
        as `logistic_first`.
    """
    state, results = state_and_results(given["state"])
    step = newton(total["sums"], given["betas"]["coefficients"])
    return _proceed(study, settings["iteration"], step, state, state["before"], results)


def _proceed(study: Study, iteration: int, step: Step, state: Arrays, before: Floats, results: Arrays) -> Finished:
    """Sort the SNPs after a step of ordinary regression: converged, failed, or to go on."""
    rows = state["rows"]
    with np.errstate(invalid="ignore", divide="ignore"):
        change = np.abs(step.se / before - 1.0) * (step.length / state.get("length", np.inf))
        # A p-value moves by the square of the statistic times as much.
        change *= np.maximum(1.0, (step.coefficients[:, -1] / step.se) ** 2)
    done = step.definite & (step.length < SHORT) & ((change < SETTLED) | (step.length < SETTLED))
    endless = ~step.definite | (np.abs(step.coefficients[:, -1]) > ENDLESS)
    at = rows[done]
    results["beta"][at], results["se"][at] = step.coefficients[done, -1], step.se[done]
    results["iterations"][at] = iteration + 1
    left = ~done & ~endless
    # Where the information cannot be inverted at the model of the covariates alone, the SNP is collinear, not
    # separated.
    failed = {Reason.COLLINEAR if iteration == 0 else Reason.SEPARATION: endless & ~done}
    if iteration + 1 >= study.max_iterations:
        failed[Reason.NOT_CONVERGED], left = left, np.zeros_like(left)
    for reason, which in failed.items():
        fail(results, rows[which], reason)
        if study.firth == "fallback" and reason != Reason.COLLINEAR:
            state["waiting"] = np.union1d(state["waiting"], rows[which])
    if left.any():
        state |= {"rows": rows[left], "length": step.length[left], "before": step.se[left]}
        return next_iteration("logistic", state, {"rows": rows[left], "coefficients": step.coefficients[left]}, results)
    waiting = state["waiting"]
    start = np.tile(state["start"], (len(waiting), 1))
    inverse = np.zeros((len(waiting), packed_size(start.shape[1])))
    return firth_next({"rows": waiting, "coefficients": start, "inverse": inverse}, {}, results)


def _separated(study: Study, counted: GenotypeCounts) -> Array:
    """Whether the copies alone tell cases from controls: no case has fewer than any control, or none has more.

    The coefficient is infinite then, whatever the covariates.
    """
    cases, controls = (counted.people(status) > 0 for status in complete_statuses(study, counted))
    copies = np.arange(3)
    some = cases.any(axis=1) & controls.any(axis=1)
    least = [np.where(here, copies, 3).min(axis=1) for here in (cases, controls)]
    most = [np.where(here, copies, -1).max(axis=1) for here in (cases, controls)]
    apart: Array = some & ((most[1] <= least[0]) | (least[1] >= most[0]))
    return apart


STEPS: dict[str, HubStep] = {"logistic_first": logistic_first, "logistic": logistic}
