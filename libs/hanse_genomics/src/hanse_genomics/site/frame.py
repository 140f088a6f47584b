"""The site's columns in the study's frame: with mean 0, sum of squares N and orthogonal over all cohorts together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hanse_genomics.arrays import Arrays, Floats
from hanse_genomics.site.columns import columns
from hanse_genomics.site.step import SiteStudy
from hanse_genomics.site.tiles import width


@dataclass(frozen=True, slots=True, eq=False)
class Framed:
    """Columns by sample, n4 rows (whole bytes of the .bed file); rows of samples that do not take part are 0.

    Attributes:
        absent: bool (n4,): who does not take part.
        predictors: float64 (n4, d): 1 and the covariates.
        outcome: float64 (n4,): 0 or 1; in linear regression the part of the phenotype that the covariates do not
        explain, standardised.
    """

    absent: NDArray[np.bool_]
    predictors: Floats
    outcome: Floats


def raw(site: SiteStudy, *, x_sex: bool) -> Floats:
    """Phenotype, covariates and, where it is one on X alone, sex last: float64 (m, c), of complete samples."""
    own = columns(site)
    parts = [own.phenotype[:, None], own.predictors]
    if x_sex:
        parts.append((site.cohort.sex[own.people] == 1).astype(np.float64)[:, None])
    return np.concatenate(parts, axis=1)


def framed(site: SiteStudy, frame: Arrays, ploidy: str) -> Framed:
    """The columns for chunks of a ploidy, made once.

    Args:
        frame: the object of step `moments`.
    """
    on_x = ploidy == "x"
    key = f"framed {on_x}"
    if key not in site.cache:
        site.cache[key] = _framed(site, frame, on_x=on_x)
    made: Framed = site.cache[key]
    return made


def _framed(site: SiteStudy, frame: Arrays, *, on_x: bool) -> Framed:
    x_sex = bool(frame["x_sex"][0])
    values = raw(site, x_sex=x_sex)
    count = values.shape[1] - 1
    if x_sex and not on_x:
        count -= 1
    standardised = (values[:, 1 : count + 1] - frame["means"][1 : count + 1]) / frame["scales"][1 : count + 1]
    white = standardised @ frame["white"][:count, :count]
    outcome = values[:, 0]
    if not site.study.is_binary:
        fit = frame["fit"]
        outcome = (outcome - frame["means"][0]) / frame["scales"][0] - white[:, : len(fit)] @ fit
        outcome = outcome / frame["left"][0]
    people = columns(site).people
    wide = width(site.cohort.samples)
    absent = np.ones(wide, dtype=bool)
    absent[people] = False
    predictors = np.zeros((wide, count + 1))
    predictors[people, 0] = 1.0
    predictors[people, 1:] = white
    whole = np.zeros(wide)
    whole[people] = outcome
    return Framed(absent, predictors, whole)
