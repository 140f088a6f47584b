"""A site's steps `chi_square` and `trend`: genotype counts by group, of which everything else follows at the hub."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hanse_genomics.arrays import Arrays, Counts, Given, PackedRows
from hanse_genomics.genotypes import Groups, count, group
from hanse_genomics.site.matched import matched
from hanse_genomics.site.samples import members
from hanse_genomics.site.step import SiteStep, SiteStudy
from hanse_privacy.joint import Settings


def grouped(site: SiteStudy, names: Sequence[str]) -> Groups:
    """The groups of these names, made once."""
    key = f"groups {' '.join(names)}"
    if key not in site.cache:
        site.cache[key] = group(np.stack([members(site, name) for name in names]))
    found: Groups = site.cache[key]
    return found


def genotype_counts(site: SiteStudy, packed: PackedRows, settings: Settings) -> Counts:
    """int64 (S, G, 3): samples of each group in `settings.groups` with 0, 1, 2 copies of the study's first allele.

    Those with a missing genotype are the rest of the group, whose size the hub knows.
    """
    return np.ascontiguousarray(count(packed, grouped(site, settings["groups"]))[:, :, :3])


def counts(site: SiteStudy, settings: Settings, given: Given) -> Arrays:
    """Genotype counts of the SNPs [start, stop) of the study."""
    found, rows = matched(site), slice(settings["start"], settings["stop"])
    made = genotype_counts(site, site.cohort.packed(found.rows[rows]), settings)
    # Turning the counts costs nothing beside turning the genotypes.
    turned = np.flatnonzero(found.swapped[rows])
    made[turned] = made[turned, :, ::-1]
    return {"counts": made}


STEPS: dict[str, SiteStep] = {"chi_square": counts, "trend": counts}
