"""A site's steps `logistic_first`, `logistic` and `firth`: information and score of a chunk's logistic regressions.

The sums of a SNP are laid out alike in all of them: packed information of 1 and the covariates, that of the copies with
each, that of the copies, then the score in the same order (`hanse_genomics.hub.newton`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hanse_genomics.arrays import Arrays, Floats, Given
from hanse_genomics.site.counts import genotype_counts
from hanse_genomics.site.covariates import weights
from hanse_genomics.site.frame import Framed, framed
from hanse_genomics.site.matched import matched
from hanse_genomics.site.step import SiteStep, SiteStudy
from hanse_genomics.site.tiles import Tile, cut, tiles
from hanse_genomics.statistics.symmetric import packed_size, products
from hanse_privacy.joint import Settings


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
    kernel = Kernel(framed(site, given["frame"], settings["ploidy"]), cut(site.cohort.samples))
    inverse = given["betas"].get("inverse")
    sums = np.empty((len(given["betas"]["rows"]), kernel.size))
    for block in kernel.blocks(site, settings, given["betas"]):
        kernel.information(block.weight, block.copies, sums[block.rows])
        leverage = None if inverse is None else kernel.leverage(block, inverse[block.rows])
        kernel.score(block, leverage, sums[block.rows])
    kernel.scale(sums)
    return {"sums": sums}


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Some SNPs at their own coefficients, with p = (1 + lean) / 2 and p (1 - p) = weight / 4. Arrays but `rows` are
    views of buffers that the next block overwrites.

    Attributes:
        rows: their places in the step's arrays.
        copies: float64 (B, n4).
        lean: float64 (B, n4): tanh of half the log-odds: in one pass what an exponential and a division take three for.
            Where a genotype is missing, 1 for cases and -1 for controls: no residual, and no weight.
        weight: float64 (B, n4): 1 - lean^2.
    """

    rows: slice
    copies: Floats
    lean: Floats
    weight: Floats


class Kernel:
    """Sums of SNPs, each with its own weights.

    Args:
        own: the site's columns.
        most: SNPs of a block at most.
    """

    def __init__(self, own: Framed, most: int) -> None:
        self.own = own
        # By columns: BLAS takes them a third faster so where there are so few.
        self.products = np.asfortranarray(products(own.predictors))
        self.columns = np.asfortranarray(own.predictors)
        self.side = 2.0 * own.outcome - 1.0
        self._sides = self.side @ own.predictors
        wide, self._d = own.predictors.shape
        self._m = packed_size(self._d)
        self.size = self._m + 2 * self._d + 2
        self._lean, self._weight, self.work = (np.empty((most, wide)) for _ in range(3))

    def blocks(self, site: SiteStudy, settings: Settings, betas: Arrays) -> Iterator[Block]:
        """The SNPs of `betas`, piece by piece of their tiles."""
        packed = matched(site).packed(settings["start"], settings["stop"])
        halves = 0.5 * betas["coefficients"]
        at = 0
        for tile in tiles(site, packed, settings["ploidy"], self.own.absent, betas["rows"]):
            rows = slice(at, at + len(tile.rows))
            yield self._weighed(rows, tile, halves[rows])
            at = rows.stop

    def _weighed(self, rows: slice, tile: Tile, halves: Floats) -> Block:
        lean, weight, work = (buffer[: len(tile.rows)] for buffer in (self._lean, self._weight, self.work))
        d = self._d
        np.matmul(halves[:, :d], self.columns.T, out=lean)
        np.multiply(tile.copies, halves[:, d:], out=work)
        lean += work
        np.tanh(lean, out=lean)
        lean[tile.snp, tile.person] = self.side[tile.person]
        np.multiply(lean, lean, out=weight)
        np.subtract(1.0, weight, out=weight)
        return Block(rows, tile.copies, lean, weight)

    def information(self, weight: Floats, copies: Floats, sums: Floats) -> None:
        """Into the first columns of (B, k): products of all columns by `weight`."""
        d, m = self._d, self._m
        work = np.multiply(weight, copies, out=self.work[: len(copies)])
        sums[:, :m] = weight @ self.products
        sums[:, m : m + d] = work @ self.columns
        sums[:, m + d] = np.vecdot(work, copies)

    def score(self, block: Block, leverage: Floats | None, sums: Floats) -> None:
        """Into the columns of (B, k) behind the information: products of twice the residuals, `side` - `lean`.

        Args:
            leverage: (B, n4), overwritten: for Firth's residuals y - p + h (1/2 - p) (Heinze and Schemper 2002).
        """
        d, lean = self._d, block.lean
        at = self._m + d + 1
        if leverage is not None:
            leverage += 1.0
            lean = np.multiply(leverage, lean, out=leverage)
        # The difference of the sums: it spares a pass over the differences.
        sums[:, at : at + d] = self._sides - lean @ self.columns
        sums[:, at + d] = block.copies @ self.side - np.vecdot(lean, block.copies)

    def scale(self, sums: Floats) -> None:
        """Turn (A, k) of `weight` and of twice the residuals into those of p (1 - p) and of the residuals, in place."""
        border = self._m + self._d + 1
        sums[:, :border] *= 0.25
        sums[:, border : self.size] *= 0.5

    def leverage(self, block: Block, inverse: Floats) -> Floats:
        """h = p (1 - p) x' A x, (B, n4).

        Args:
            inverse: A, (B, k), packed with the SNP last; a product off the diagonal is there twice.
        """
        d = self._d
        row, column = np.triu_indices(d + 1)
        twice = 0.25 * inverse * np.where(row == column, 1.0, 2.0)
        inner, border = column < d, (column == d) & (row < d)
        leverage: Floats = (twice[:, border] @ self.columns.T + twice[:, -1:] * block.copies) * block.copies
        leverage += twice[:, inner] @ self.products.T
        leverage *= block.weight
        # A leverage is at most 1; `inverse` is that of the step before, by which it may seem more.
        return np.clip(leverage, 0.0, 1.0, out=leverage)


STEPS: dict[str, SiteStep] = {"logistic_first": logistic_first, "logistic": logistic, "firth": logistic}
