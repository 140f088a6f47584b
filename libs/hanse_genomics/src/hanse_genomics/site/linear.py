"""A site's step `linear`: everything that a chunk's linear regressions need, in one sum."""

from __future__ import annotations

import numpy as np

from hanse_genomics.arrays import Arrays, Floats, Given
from hanse_genomics.site.counts import genotype_counts
from hanse_genomics.site.frame import Framed, framed
from hanse_genomics.site.matched import matched
from hanse_genomics.site.step import SiteStep, SiteStudy
from hanse_genomics.site.tiles import tiles
from hanse_genomics.statistics.symmetric import products
from hanse_privacy.joint import Settings


def linear(site: SiteStudy, settings: Settings, given: Given) -> Arrays:
    """Sums of products (Nasirigerdeh et al., 2022, (4), (5)); those of a genotype with itself follow from its counts.

    Returns:
        counts: as step `chi_square`; sums: float64 (S, k), over samples with a genotype: genotype times each
        covariate, genotype times outcome, then `of_sample`'s columns.
    """
    packed = matched(site).packed(settings["start"], settings["stop"])
    counts = genotype_counts(site, packed, settings)
    own = framed(site, given["frame"], settings["ploidy"])
    each = of_sample(own)
    whole = each.sum(axis=0)
    right = np.column_stack([own.predictors[:, 1:], own.outcome])
    d = right.shape[1]
    sums = np.empty((len(packed), d + len(whole)))
    for tile in tiles(site, packed, settings["ploidy"], own.absent, np.arange(len(packed))):
        sums[tile.rows, :d] = tile.copies @ right
        sums[tile.rows, d:] = tile.without_missing(whole, each)
    return {"counts": counts, "sums": sums}


def of_sample(own: Framed) -> Floats:
    """What a sample adds that does not depend on the genotype: packed products of 1 and the covariates without 1 * 1,
    then their products with the outcome, then its square: (n4, k).
    """
    return np.column_stack(
        [products(own.predictors)[:, 1:], own.predictors * own.outcome[:, None], own.outcome**2]
    )  # fmt: skip


STEPS: dict[str, SiteStep] = {"linear": linear}
