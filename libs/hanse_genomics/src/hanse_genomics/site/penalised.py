"""A site's step `penalised`: what a Newton step of Firth's penalised logistic regressions needs, in one sum.

The penalty is half the logarithm of the information's determinant (Firth 1993). Its gradient is the product of the
information's inverse and the third derivatives of the likelihood: the hub makes the exact score of sums for which
sites need no leverage, and the penalty's second derivatives of the same.
"""

from __future__ import annotations

import numpy as np

from hanse_genomics.arrays import Arrays, Floats, Given
from hanse_genomics.site.frame import framed
from hanse_genomics.site.logistic import Block, Kernel
from hanse_genomics.site.step import SiteStep, SiteStudy
from hanse_genomics.site.tiles import cut
from hanse_genomics.statistics.symmetric import packed_size, thirds
from hanse_privacy.joint import Settings

LEAST = -32.0
"""Of the logarithm of a person's probability: below, all are as improbable, so that sums of them have a bound."""


def penalised(site: SiteStudy, settings: Settings, given: Given) -> Arrays:
    """At each SNP's own coefficients.

    Args:
        given: `frame`, and `betas` as of step `firth`.

    Returns:
        sums: float64 (A, k): the layout's columns, then packed products of all columns by h (3 w - 1/2), h the
        leverage. third: float64 (A, l): the log-likelihood, then products of three columns by w (1 - 2 p): of 1 and
        the covariates, of two of these and the copies, of one, of none.
    """
    kernel = Kernel(framed(site, given["frame"], settings["ploidy"]), cut(site.cohort.samples))
    betas, d = given["betas"], kernel.own.predictors.shape[1]
    sums = np.empty((len(betas["rows"]), kernel.size + packed_size(d + 1)))
    third = np.empty((len(sums), 1 + thirds(d + 1)))
    for block in kernel.blocks(site, settings, betas):
        kernel.information(block.weight, block.copies, sums[block.rows])
        third[block.rows, 0] = _likelihood(kernel, block)
        leverage = kernel.leverage(block, betas["inverse"][block.rows])
        leverage *= 0.75 * block.weight - 0.5
        kernel.information(leverage, block.copies, sums[block.rows, kernel.size :])
        skew = -0.25 * block.weight * block.lean
        _third(kernel, skew, block.copies, third[block.rows, 1:])
        kernel.score(block, None, sums[block.rows])
    kernel.scale(sums)
    return {"sums": sums, "third": third}


def _likelihood(kernel: Kernel, block: Block) -> Floats:
    """The log-likelihood of those who have a phenotype and the genotype: (B,)."""
    with np.errstate(divide="ignore"):
        each = np.maximum(np.log(0.5 + 0.5 * kernel.side * block.lean), LEAST)
    each[:, kernel.own.absent] = 0.0
    made: Floats = each.sum(axis=1)
    return made


def _third(kernel: Kernel, skew: Floats, copies: Floats, out: Floats) -> None:
    columns, pairs = kernel.columns, kernel.products
    d = columns.shape[1]
    at = 0
    for first in range(d):
        # Pairs of columns from `first` on are the last ones of the packed order.
        rest = pairs[:, pairs.shape[1] - packed_size(d - first) :]
        out[:, at : at + rest.shape[1]] = (skew * columns[:, first]) @ rest
        at += rest.shape[1]
    for with_copies in (pairs, columns):
        skew *= copies
        out[:, at : at + with_copies.shape[1]] = skew @ with_copies
        at += with_copies.shape[1]
    out[:, at] = np.vecdot(skew, copies)


STEPS: dict[str, SiteStep] = {"penalised": penalised}
