"""A site's steps `logistic_first`, `logistic` and `firth`: information and score of a chunk's logistic regressions.

The sums of a SNP are laid out alike in all of them: packed information of 1 and the covariates, that of the copies with
each, that of the copies, then the score in the same order (`hanse_genomics.hub.newton`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hanse_genomics.arrays import Arrays, Floats
from hanse_genomics.site.counts import genotype_counts
from hanse_genomics.site.covariates import weights
from hanse_genomics.site.frame import Framed, framed
from hanse_genomics.site.matched import matched
from hanse_genomics.site.step import SiteStep, SiteStudy
from hanse_genomics.site.tiles import Tile, tiles
from hanse_genomics.statistics.symmetric import packed_size, products

BLOCK = 64
"""SNPs whose weights are worked on at a time, so that they stay in a core's cache."""


def logistic_first(site: SiteStudy, settings: Mapping[str, Any], given: Mapping[str, Arrays]) -> Arrays:
    """At the model of covariates alone, whose weights are the same for all SNPs: two matrix products a tile.

    Args:
        given: `frame`, `null`.

    Returns:
        counts: as step `chi_square`; sums: float64 (S, k), after the layout's columns the copies' products with each
        covariate without weights; present, where `settings.present` asks for it: float64 (S, k), over samples with a
        genotype: packed products of 1 and the covariates without 1 * 1. By both, collinear SNPs are found.
    """
    packed = matched(site).packed(settings["start"], settings["stop"])
    counts = genotype_counts(site, packed, settings)
    on_x = settings["ploidy"] == "x" and bool(given["frame"]["x_sex"][0])
    own = framed(site, given["frame"], settings["ploidy"])
    residual, weight = weights(own, given["null"]["x_coefficients" if on_x else "coefficients"])
    columns = own.predictors
    d = columns.shape[1]
    m = packed_size(d)
    crossed = products(columns)
    each = np.column_stack([crossed * weight[:, None], columns * residual[:, None], crossed[:, 1:]])
    whole = each.sum(axis=0)
    right = np.column_stack([columns * weight[:, None], residual, columns[:, 1:]])
    sums = np.empty((len(packed), m + d + 1 + d + 1 + d - 1))
    present = np.empty((len(packed), m - 1))
    for tile in tiles(site, packed, settings["ploidy"], own.absent, np.arange(len(packed))):
        fixed = tile.without_missing(whole, each)
        with_snp = tile.copies @ right
        np.square(tile.copies, out=tile.copies)
        sums[tile.rows, :m] = fixed[:, :m]
        sums[tile.rows, m : m + d] = with_snp[:, :d]
        sums[tile.rows, m + d] = tile.copies @ weight
        sums[tile.rows, m + d + 1 : m + 2 * d + 1] = fixed[:, m : m + d]
        sums[tile.rows, m + 2 * d + 1 :] = with_snp[:, d:]
        present[tile.rows] = fixed[:, m + d :]
    made = {"counts": counts, "sums": sums}
    return made | {"present": present} if settings.get("present") else made


def logistic(site: SiteStudy, settings: Mapping[str, Any], given: Mapping[str, Arrays]) -> Arrays:
    """At each SNP's own coefficients (Nasirigerdeh et al., 2022, equations (15) to (17)).

    Args:
        given: `frame`; `betas`: rows int64 (A,), SNPs of the chunk that have not converged, and coefficients
            float64 (A, d + 1), the SNP's last; for step `firth` inverse float64 (A, k), packed: of the information.

    Returns:
        sums: float64 (A, k).
    """
    packed = matched(site).packed(settings["start"], settings["stop"])
    own = framed(site, given["frame"], settings["ploidy"])
    betas = given["betas"]
    rows, coefficients, inverse = betas["rows"], betas["coefficients"], betas.get("inverse")
    kernel = _Kernel(own)
    sums = np.empty((len(rows), kernel.size))
    at = 0
    for tile in tiles(site, packed, settings["ploidy"], own.absent, rows):
        here = slice(at, at + len(tile.rows))
        at = here.stop
        kernel.add(tile, coefficients[here], None if inverse is None else inverse[here], sums[here])
    return {"sums": sums}


class _Kernel:
    """Sums of a block of SNPs, each with its own weights.

    Args:
        own: the site's columns.
    """

    def __init__(self, own: Framed) -> None:
        self._columns, self._outcome = own.predictors, own.outcome
        self._transposed = np.ascontiguousarray(own.predictors.T)
        self._products = products(own.predictors)
        wide, self._d = own.predictors.shape
        self._m = packed_size(self._d)
        self.size = self._m + 2 * self._d + 2
        self._p, self._weight, self._work = (np.empty((BLOCK, wide)) for _ in range(3))

    def add(self, tile: Tile, coefficients: Floats, inverse: Floats | None, sums: Floats) -> None:
        """The sums of a tile's SNPs, block by block, into (T, k)."""
        for start in range(0, len(tile.rows), BLOCK):
            rows = slice(start, min(start + BLOCK, len(tile.rows)))
            low, high = np.searchsorted(tile.snp, (rows.start, rows.stop))
            absent = (tile.snp[low:high] - start, tile.person[low:high])
            leverage = None if inverse is None else inverse[rows]
            self._block(tile.copies[rows], absent, coefficients[rows], leverage, sums[rows])

    def _block(
        self, copies: Floats, absent: tuple[Any, Any], coefficients: Floats, inverse: Floats | None, sums: Floats
    ) -> None:
        p, weight, work = (buffer[: len(copies)] for buffer in (self._p, self._weight, self._work))
        d, m = self._d, self._m
        np.matmul(-coefficients[:, :d], self._transposed, out=p)
        np.multiply(copies, -coefficients[:, d:], out=work)
        p += work
        with np.errstate(over="ignore"):
            np.exp(p, out=p)
        p += 1.0
        np.divide(1.0, p, out=p)
        np.multiply(p, p, out=weight)
        np.subtract(p, weight, out=weight)
        weight[absent] = 0.0
        np.multiply(weight, copies, out=work)
        sums[:, :m] = weight @ self._products
        sums[:, m : m + d] = work @ self._columns
        sums[:, m + d] = np.vecdot(work, copies)
        if inverse is None:
            np.subtract(self._outcome, p, out=p)
        else:
            self._penalised(p, weight, work, copies, inverse)
        p[absent] = 0.0
        sums[:, m + d + 1 : m + 2 * d + 1] = p @ self._columns
        sums[:, m + 2 * d + 1] = np.vecdot(p, copies)

    def _penalised(self, p: Floats, weight: Floats, work: Floats, copies: Floats, inverse: Floats) -> None:
        """Firth's residuals y - p + h (1/2 - p), h the leverage w x' A x; into `p` (Heinze and Schemper 2002).

        `inverse` is packed with the SNP last; a product off the diagonal is there twice.
        """
        d = self._d
        row, column = np.triu_indices(d + 1)
        twice = inverse * np.where(row == column, 1.0, 2.0)
        inner, border = column < d, (column == d) & (row < d)
        leverage = (twice[:, border] @ self._transposed + twice[:, -1:] * copies) * copies
        leverage += twice[:, inner] @ self._products.T
        leverage *= weight
        # A leverage is at most 1; `inverse` is that of the step before, by which it may seem more.
        np.clip(leverage, 0.0, 1.0, out=leverage)
        np.subtract(0.5, p, out=work)
        leverage *= work
        np.subtract(self._outcome, p, out=p)
        p += leverage


STEPS: dict[str, SiteStep] = {"logistic_first": logistic_first, "logistic": logistic, "firth": logistic}
