"""A site's steps `logistic_first`, `logistic` and `firth`: information and score of a chunk's logistic regressions.

The sums of a SNP are laid out alike in all of them: packed information of 1 and the covariates, that of the copies with
each, that of the copies, then the score in the same order (`hanse_genomics.hub.newton`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hanse_genomics.arrays import Arrays, Counts, Floats, Given
from hanse_genomics.site.counts import genotype_counts
from hanse_genomics.site.covariates import weights
from hanse_genomics.site.frame import Framed, framed
from hanse_genomics.site.matched import matched
from hanse_genomics.site.step import SiteStep, SiteStudy
from hanse_genomics.site.tiles import tiles
from hanse_genomics.statistics.symmetric import packed_size, products
from hanse_genomics.verbs import Settings

BLOCK = 64
"""SNPs whose weights are worked on at a time, so that they stay in a core's cache."""


def logistic_first(site: SiteStudy, settings: Settings, given: Given) -> Arrays:
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


def logistic(site: SiteStudy, settings: Settings, given: Given) -> Arrays:
    """At each SNP's own coefficients (Nasirigerdeh et al., 2022, equations (15) to (17)).

    Args:
        given: `frame`; `betas`: rows int64 (A,), SNPs of the chunk that have not converged, and coefficients
            float64 (A, d + 1), the SNP's last; for step `firth` inverse float64 (A, k), packed: of the information.

    Returns:
        sums: float64 (A, k).
    """
    kernel = Kernel(framed(site, given["frame"], settings["ploidy"]))
    inverse = given["betas"].get("inverse")
    sums = np.empty((len(given["betas"]["rows"]), kernel.size))
    for block in kernel.blocks(site, settings, given["betas"]):
        kernel.information(block, sums[block.rows])
        leverage = None if inverse is None else kernel.leverage(block, inverse[block.rows])
        kernel.score(block, leverage, sums[block.rows])
    return {"sums": sums}


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Some SNPs at their own coefficients. Arrays but `rows` are views of buffers that the next block overwrites.

    Attributes:
        rows: their places in the step's arrays.
        copies, p, weight: float64 (B, n4): copies, probabilities, and p (1 - p), 0 where a genotype is missing.
        absent: which genotypes are missing, by place in the block and by sample.
    """

    rows: slice
    copies: Floats
    p: Floats
    weight: Floats
    absent: tuple[Counts, Counts]


class Kernel:
    """Sums of SNPs, each with its own weights.

    Args:
        own: the site's columns.
    """

    def __init__(self, own: Framed) -> None:
        self.own = own
        self.products = products(own.predictors)
        self._transposed = np.ascontiguousarray(own.predictors.T)
        wide, self._d = own.predictors.shape
        self._m = packed_size(self._d)
        self.size = self._m + 2 * self._d + 2
        self._p, self._weight, self.work = (np.empty((BLOCK, wide)) for _ in range(3))

    def blocks(self, site: SiteStudy, settings: Settings, betas: Arrays) -> Iterator[Block]:
        """The SNPs of `betas`, `BLOCK` of a tile at a time."""
        packed = matched(site).packed(settings["start"], settings["stop"])
        at = 0
        for tile in tiles(site, packed, settings["ploidy"], self.own.absent, betas["rows"]):
            for start in range(0, len(tile.rows), BLOCK):
                stop = min(start + BLOCK, len(tile.rows))
                low, high = np.searchsorted(tile.snp, (start, stop))
                absent = (tile.snp[low:high] - start, tile.person[low:high])
                rows = slice(at + start, at + stop)
                yield self._weighed(rows, tile.copies[start:stop], absent, betas["coefficients"][rows])
            at += len(tile.rows)

    def _weighed(self, rows: slice, copies: Floats, absent: tuple[Counts, Counts], coefficients: Floats) -> Block:
        p, weight, work = (buffer[: len(copies)] for buffer in (self._p, self._weight, self.work))
        d = self._d
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
        return Block(rows, copies, p, weight, absent)

    def information(self, block: Block, sums: Floats) -> None:
        """Into the first columns of (B, k): products of all columns by `block.weight`."""
        d, m = self._d, self._m
        work = np.multiply(block.weight, block.copies, out=self.work[: len(block.copies)])
        sums[:, :m] = block.weight @ self.products
        sums[:, m : m + d] = work @ self.own.predictors
        sums[:, m + d] = np.vecdot(work, block.copies)

    def score(self, block: Block, leverage: Floats | None, sums: Floats) -> None:
        """Into the columns of (B, k) behind the information: products of the residuals, which overwrite `block.p`.

        Args:
            leverage: (B, n4), overwritten: for Firth's residuals y - p + h (1/2 - p) (Heinze and Schemper 2002).
        """
        d, p = self._d, block.p
        at = self._m + d + 1
        if leverage is not None:
            leverage *= np.subtract(0.5, p, out=self.work[: len(p)])
        np.subtract(self.own.outcome, p, out=p)
        if leverage is not None:
            p += leverage
        p[block.absent] = 0.0
        sums[:, at : at + d] = p @ self.own.predictors
        sums[:, at + d] = np.vecdot(p, block.copies)

    def leverage(self, block: Block, inverse: Floats) -> Floats:
        """h = w x' A x, (B, n4).

        Args:
            inverse: A, (B, k), packed with the SNP last; a product off the diagonal is there twice.
        """
        d = self._d
        row, column = np.triu_indices(d + 1)
        twice = inverse * np.where(row == column, 1.0, 2.0)
        inner, border = column < d, (column == d) & (row < d)
        leverage: Floats = (twice[:, border] @ self._transposed + twice[:, -1:] * block.copies) * block.copies
        leverage += twice[:, inner] @ self.products.T
        leverage *= block.weight
        # A leverage is at most 1; `inverse` is that of the step before, by which it may seem more.
        return np.clip(leverage, 0.0, 1.0, out=leverage)


STEPS: dict[str, SiteStep] = {"logistic_first": logistic_first, "logistic": logistic, "firth": logistic}
