"""The hub's steps before the SNPs: means, the frame in which sites standardise, and the model of covariates alone."""

from __future__ import annotations

import numpy as np

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_genomics import wide
from hanse_genomics.arrays import Arrays, Floats, Given
from hanse_genomics.hub.step import Finished, HubStep
from hanse_genomics.names import covariates
from hanse_genomics.statistics.symmetric import cholesky, packed_size, unpacked
from hanse_privacy.joint import Settings
from hanse_schemas.study import Study

CONSTANT = 1e-12
"""Spread relative to the mean at which a column is constant: below it there is only rounding."""
FINEST = 1e-13
"""Standard deviation below which squares, which are summed with 120 bits after the point, have lost digits."""
COLLINEAR = 1e-8
"""Share of a covariate's variance that the ones before it must leave."""
CONVERGED = 1e-10
"""Length of the last Newton step of the covariates' model, in standard errors."""
LARGEST_STEP = 5.0


def totals(study: Study, settings: Settings, total: Arrays, given: Given) -> Finished:
    """Means of the columns over all cohorts: output `centre`."""
    return Finished({"centre": {"means": wide.join(total["sums"]) / settings["samples"]}})


def moments(study: Study, settings: Settings, total: Arrays, given: Given) -> Finished:
    """The frame.

    Returns:
        output `frame`: means, scales (c,) of phenotype and predictors; `white` (q, q): standardised predictors times
        its leading block are orthogonal; for linear `fit`, the outcome's coefficients on these, and `left`, the
        standard deviation of what they leave; `correlation` (q, q) of the predictors. Output `null` (logistic): where
        Newton's method begins.

    Raises:
        HanseError: INVALID_INPUT for a column that is constant over all cohorts, or that others explain.
    """
    n = settings["samples"]
    means = given["centre"]["means"]
    columns = ["the phenotype", *(f"covariate {name}" for name in covariates(study))]
    if settings["x_sex"]:
        columns.append("sex")
    covariance = unpacked(wide.join(total["products"])[None, :], len(columns))[0] / n
    scales = np.sqrt(np.diag(covariance))
    for name, mean, scale in zip(columns, means.tolist(), scales.tolist(), strict=True):
        if mean and scale <= CONSTANT * abs(mean):
            raise HanseError(
                ErrorCode.INVALID_INPUT,
                f"{name} is the same for all {n} samples of all cohorts that can be tested, {mean:g}",
                hint="take it out of the study" if name != "the phenotype" else "nothing can be learned of it",
            )
        if scale < FINEST:
            raise HanseError(
                ErrorCode.INVALID_INPUT,
                f"{name} differs by less than {FINEST:g}, or not at all, between the {n} samples of all cohorts that "
                "can be tested: sums over cohorts are not finer",
                hint="give it in another unit in all cohorts, or take it out of the study",
            )
    correlation = covariance / np.outer(scales, scales)
    own = correlation[1:, 1:]
    asked = len(covariates(study))
    factor = _factor(study, columns[1:], own, asked)
    white = np.linalg.inv(factor).T
    frame: Arrays = {
        "means": means,
        "scales": scales,
        "white": white,
        "correlation": own,
        "x_sex": np.array([settings["x_sex"]], dtype=np.int64),
    }
    if study.is_binary:
        cases = float(means[0])
        start = np.zeros(asked + 1)
        start[0] = np.log(cases / (1 - cases))
        null = {"coefficients": start, "x_coefficients": np.append(start, 0.0)}
        return Finished({"frame": frame, "null": null})
    fit = white[:asked, :asked].T @ correlation[1 : asked + 1, 0]
    left = 1.0 - float(fit @ fit)
    if left <= CONSTANT:
        raise HanseError(
            ErrorCode.INVALID_INPUT, "the covariates explain the phenotype without error",
            hint="is one of them the phenotype itself?",
        )  # fmt: skip
    frame |= {"fit": fit, "left": np.array([np.sqrt(left)])}
    return Finished({"frame": frame}, {"r2": 1.0 - left})


def null(study: Study, settings: Settings, total: Arrays, given: Given) -> Finished:
    """A Newton step of the logistic model of covariates alone (Nasirigerdeh et al., 2022, equations (19) to (22)).

    Returns:
        output `null`; facts: `done`, `iterations`.
    """
    sums = total["sums"][0]
    coefficients = dict(given["null"])
    done = True
    at = 0
    for name in ("coefficients", "x_coefficients") if settings["x_sex"] else ("coefficients",):
        d = len(coefficients[name])
        information, score = sums[at : at + packed_size(d)], sums[at + packed_size(d) :][:d]
        at += packed_size(d) + d
        factors = cholesky(unpacked(information[None, :], d))
        if not factors.definite[0]:
            raise _separated()
        forward = factors.forward(score[None, :])
        step = factors.backward(forward)[0]
        largest = float(np.abs(step).max())
        coefficients[name] = coefficients[name] + step * min(1.0, LARGEST_STEP / max(largest, LARGEST_STEP))
        done &= float(np.linalg.norm(forward)) < CONVERGED
    if np.abs(coefficients["coefficients"]).max() > 1e3:
        raise _separated()
    return Finished({"null": coefficients}, {"done": done, "iterations": settings["iteration"] + 1})


def _factor(study: Study, names: list[str], correlation: Floats, asked: int) -> Floats:
    """The Cholesky factor of the predictors' correlation."""
    factor = np.zeros_like(correlation)
    for j in range(len(names)):
        row = np.linalg.solve(factor[:j, :j], correlation[:j, j]) if j else np.zeros(0)
        left = 1.0 - float(row @ row)
        if left < COLLINEAR:
            explained: Floats = np.linalg.solve(correlation[:j, :j], correlation[:j, j]).astype(np.float64)
            raise _explained(names, j, explained)
        factor[j, :j] = row
        factor[j, j] = np.sqrt(left)
    if asked:
        inflation = np.diag(np.linalg.inv(correlation[:asked, :asked]))
        worst = int(inflation.argmax())
        if inflation[worst] > study.vif:
            raise HanseError(
                ErrorCode.INVALID_INPUT,
                f"{names[worst]}: its variance inflation factor is {inflation[worst]:.4g} among the covariates, "
                f"expected at most {study.vif:g}: every SNP would be NA",
                hint="leave one of the covariates that explain each other out, or raise study.vif",
            )
    return factor


def _explained(names: list[str], j: int, coefficients: Floats) -> HanseError:
    by = [name for name, value in zip(names, coefficients.tolist(), strict=False) if abs(value) > 1e-6]
    return HanseError(
        ErrorCode.INVALID_INPUT,
        f"{names[j]} is explained by {', '.join(by)} without error, over all cohorts together",
        hint="take one of them out of the study",
    )


def _separated() -> HanseError:
    return HanseError(
        ErrorCode.INVALID_INPUT,
        "covariates: they tell cases from controls without error, so that no SNP can be tested",
        hint="is one of them the phenotype itself?",
    )


STEPS: dict[str, HubStep] = {"totals": totals, "moments": moments, "null": null}
