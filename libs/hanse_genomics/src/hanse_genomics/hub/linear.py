"""The hub's step `linear`: a chunk's regressions from sums of all cohorts (Nasirigerdeh et al., 2022, (4) to (14))."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hanse_genomics.arrays import Array, Arrays, Floats, Given
from hanse_genomics.hub.complete import Genotypes, collinear, genotypes, prepared, refuse
from hanse_genomics.hub.genotype_counts import counted_genotypes
from hanse_genomics.hub.step import Finished, HubStep
from hanse_genomics.reasons import Reason
from hanse_genomics.statistics import tails
from hanse_genomics.statistics.symmetric import blocks, bordered, cholesky, dots, packed_size, unpacked
from hanse_privacy.joint import Settings
from hanse_schemas.study import Study

EXPLAINED = 1e-14
"""Share of the outcome's variance below which nothing is left but rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class RegressionSums:
    """Of the samples with a genotype, over the covariates in the frame with 1 before them (d columns).

    Attributes:
        inner: (S, d, d): products of the columns; border: (S, d): with the copies; corner: (S,): of the copies.
        outcome: (S, d): products of the columns with the outcome; snp: (S,) of the copies with it; square: its own.
    """

    inner: Floats
    border: Floats
    corner: Floats
    outcome: Floats
    snp: Floats
    square: Floats

    @classmethod
    def read(cls, sums: Floats, own: Genotypes, d: int) -> RegressionSums:
        """From a site's array `sums` and the counts."""
        ends = np.cumsum([d - 1, 1, packed_size(d) - 1, d, 1])
        with_snp, snp, inner, outcome, square = np.split(sums, ends[:-1], axis=1)
        return cls(
            inner=unpacked(np.column_stack([own.n, inner]), d),
            border=np.column_stack([own.first, with_snp]),
            corner=own.second,
            outcome=outcome,
            snp=snp[:, 0],
            square=square[:, 0],
        )

    def part(self, rows: slice) -> RegressionSums:
        return RegressionSums(*(getattr(self, name)[rows] for name in self.__slots__))


def linear(study: Study, settings: Settings, total: Arrays, given: Given) -> Finished:
    """Regress the phenotype on each SNP and the covariates.

    Args:
        total: `counts`, `sums`; given: `frame`.

    Returns:
        output `results`: beta, se, stat, p, log10_p beside what every test tells.
    """
    counted = counted_genotypes(study, settings, total["counts"])
    own = genotypes(study, counted)
    frame = given["frame"]
    d = columns_of(frame, settings["ploidy"]) + 1
    results = prepared(study, counted, own, d + 1)
    sums = RegressionSums.read(total["sums"], own, d)
    fits = [_fit(study, frame, sums.part(rows)) for rows in blocks(len(own.n), d + 1)]
    b, variance, left, dependent = (np.concatenate(parts) for parts in zip(*fits, strict=True))
    refuse(results, dependent, Reason.COLLINEAR)
    refuse(results, left <= EXPLAINED * sums.square, Reason.NO_VARIANCE)
    df = own.n - d - 1
    tested = results["reason"] == Reason.TESTED
    scale = frame["scales"][0] * frame["left"][0] * np.where(results["minor"] == 1, -1.0, 1.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        se = np.where(tested, np.sqrt(left / df * variance), np.nan)
        stat = b / se * np.sign(scale)
    p, log10_p = tails.student(stat, df)
    results |= {
        "beta": np.where(tested, b * scale, np.nan), "se": se * np.abs(scale), "stat": stat, "p": p, "log10_p": log10_p,
    }  # fmt: skip
    return Finished({"results": results})


def columns_of(frame: Arrays, ploidy: str) -> int:
    """Covariates of a chunk's model."""
    all_of_them = len(frame["scales"]) - 1
    return all_of_them - int(frame["x_sex"][0]) if ploidy != "x" else all_of_them


def _fit(study: Study, frame: Arrays, sums: RegressionSums) -> tuple[Floats, Floats, Floats, Array]:
    """Coefficient of the copies, its variance by that of the residuals, the residuals' sum of squares, and whether the
    predictors depend on each other: (S,) each.
    """
    factors = cholesky(bordered(sums.inner, sums.border, sums.corner))
    forward = factors.forward(np.column_stack([sums.outcome, sums.snp]))
    last = factors.lower[:, -1, -1]
    left = sums.square - dots(forward, forward)
    dependent = ~factors.definite | collinear(frame, sums.inner, sums.border, sums.corner, study.vif)
    return forward[:, -1] / last, 1.0 / last**2, np.maximum(left, 0.0), dependent


STEPS: dict[str, HubStep] = {"linear": linear}
