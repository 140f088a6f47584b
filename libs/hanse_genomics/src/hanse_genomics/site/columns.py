"""A site's columns: the phenotype and the predictors, and who has all of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_genomics.arrays import Floats
from hanse_genomics.site.step import SiteStudy

COMPONENTS = "components.npy"
"""In the study's folder at the site: its samples' principal components, float64 (n, k)."""


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Of the complete samples alone.

    Attributes:
        people: int64 (m,): which samples are complete, in the order of the .fam file.
        phenotype: float64 (m,); predictors: float64 (m, q): covariates, SEX, components.
    """

    people: NDArray[np.int64]
    phenotype: Floats
    predictors: Floats


def complete(site: SiteStudy) -> NDArray[np.bool_]:
    """Who has a phenotype and every covariate: bool (n,). Components belong to every sample."""
    cohort = site.cohort
    known: NDArray[np.bool_] = ~np.isnan(cohort.phenotype)
    if site.study.is_regression:
        known &= ~np.isnan(cohort.covariates).any(axis=1)
    return known


def columns(site: SiteStudy) -> Columns:
    """The columns of the complete samples.

    Raises:
        HanseError: CONFLICT when the site's components are gone.
    """
    found: Columns | None = site.cache.get("columns")
    if found is None:
        people = np.flatnonzero(complete(site))
        predictors = site.cohort.covariates[people]
        if site.study.structure.components:
            predictors = np.column_stack([predictors, _components(site)[people]])
        found = Columns(people, site.cohort.phenotype[people], predictors)
        site.cache["columns"] = found
    return found


def _components(site: SiteStudy) -> Floats:
    try:
        values: Floats = np.load(site.state / COMPONENTS, allow_pickle=False)
    except (OSError, ValueError):
        raise HanseError(
            ErrorCode.CONFLICT, "the site's principal components of this study are gone",
            hint="start the study anew; a site's folder stays as it is until the study has ended",
        ) from None  # fmt: skip
    return values
