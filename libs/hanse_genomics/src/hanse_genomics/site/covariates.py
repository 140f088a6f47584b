"""A site's steps before the SNPs: `totals` and `moments` of its columns, and `null`, the model of covariates alone."""

from __future__ import annotations

import math

import numpy as np

from hanse_genomics import wide
from hanse_genomics.arrays import Arrays, Floats, Given
from hanse_genomics.site.frame import Framed, framed, raw
from hanse_genomics.site.step import SiteStep, SiteStudy
from hanse_genomics.statistics.symmetric import products
from hanse_privacy.joint import Settings


def totals(site: SiteStudy, settings: Settings, given: Given) -> Arrays:
    """Sums of the columns of complete samples: `sums` int64 (c, LIMBS)."""
    columns = raw(site, x_sex=settings["x_sex"])
    return {"sums": wide.split(math.fsum(column) for column in columns.T.tolist())}


def moments(site: SiteStudy, settings: Settings, given: Given) -> Arrays:
    """Sums of products of the columns about the means of all cohorts, packed: `products` int64 (c (c+1) / 2, LIMBS).

    Args:
        given: `centre` with `means`.
    """
    centred = raw(site, x_sex=settings["x_sex"]) - given["centre"]["means"]
    return {"products": wide.split(math.fsum(column) for column in products(centred).T.tolist())}


def null(site: SiteStudy, settings: Settings, given: Given) -> Arrays:
    """Information and score of the logistic model of covariates alone: `sums` float64 (1, k).

    Args:
        given: `frame`, and `null` with the coefficients so far; where sex is a covariate on X alone, those of both.

    Returns:
        packed information, then score; those of the model on X after it.
    """
    models = [("diploid", "coefficients")]
    if settings["x_sex"]:
        models.append(("x", "x_coefficients"))
    sums = [
        _null_sums(framed(site, given["frame"], ploidy), given["null"][coefficients]) for ploidy, coefficients in models
    ]
    return {"sums": np.concatenate(sums)[None, :]}


def weights(own: Framed, coefficients: Floats) -> tuple[Floats, Floats]:
    """Residuals y - p and weights p (1 - p) under a model of covariates: float64 (n4,) each, 0 for those absent."""
    with np.errstate(over="ignore"):
        p = 1.0 / (1.0 + np.exp(-(own.predictors @ coefficients)))
    here = ~own.absent
    return np.where(here, own.outcome - p, 0.0), np.where(here, p * (1.0 - p), 0.0)


def _null_sums(own: Framed, coefficients: Floats) -> Floats:
    residual, weight = weights(own, coefficients)
    return np.concatenate([weight @ products(own.predictors), residual @ own.predictors])


STEPS: dict[str, SiteStep] = {"totals": totals, "moments": moments, "null": null}
