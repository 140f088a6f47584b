"""A site's step `open`: the SNPs that it has, so that the hub finds those in common. It is not masked, because the hub
must compare it word by word. Nothing in it depends on any sample's genotype: alleles go in alphabetical order.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from hanse_genomics.arrays import Arrays, Given
from hanse_genomics.files import text
from hanse_genomics.files.matching import POSITION_BITS
from hanse_genomics.files.snps import SnpTable
from hanse_genomics.site.step import SiteStep, SiteStudy
from hanse_privacy.joint import Settings

VERSION = 2
"""Of the steps of a site: sites of release 0.1.0 tell none, and know no array `present` of step `logistic_first`."""


def open_files(site: SiteStudy, settings: Settings, given: Given) -> Arrays:
    """The cohort's SNPs.

    Returns:
        chromosome int8, position int64, name (text) and pair int32 (S,), in the .bim file's order; low, high (text,
        (P,)): the two alleles of each pair, sorted; left_out int64 (2,): SNPs that stand more than once, and such with
        a negative position; version int64 (1,): of what the site can be asked (`VERSION`).
    """
    return {**offered(site.cohort.snps), "version": np.array([VERSION], dtype=np.int64)}


def offered(snps: SnpTable) -> Arrays:
    """What of a .bim file takes part: SNPs with a position that is not negative, and that stand there once."""
    placed = snps.position >= 0
    # Nobody can tell which of the two lines is meant, so neither takes part.
    keep = placed & ~repeated(snps)
    left_out = np.array([(placed & ~keep).sum(), (~placed).sum()], dtype=np.int64)
    names, pair = snps.name, snps.alleles.number
    if not keep.all():
        names, pair = [names[row] for row in np.flatnonzero(keep).tolist()], pair[keep]
    used = np.unique(pair)
    turned = [(min(two), max(two)) for two in (snps.alleles.listed[at] for at in used.tolist())]
    number = {two: at for at, two in enumerate(sorted(set(turned)))}
    codes = np.array([number[two] for two in turned], dtype=np.int32)
    return {
        "chromosome": snps.code[keep],
        "position": snps.position[keep],
        "name": text.pack(names),
        "pair": codes[np.searchsorted(used, pair)],
        "low": text.pack(low for low, _ in number),
        "high": text.pack(high for _, high in number),
        "left_out": left_out,
    }


def repeated(snps: SnpTable) -> NDArray[np.bool_]:
    """SNPs that stand more than once, by chromosome, position and name: bool (S,).

    Names are looked at only where places are equal: files mostly stand in genome order, without such.
    """
    places = (snps.code.astype(np.int64) << POSITION_BITS) + snps.position
    steps = np.diff(places)
    found = np.zeros(len(snps), dtype=np.bool_)
    if bool((steps > 0).all()):
        return found
    order = np.argsort(places, kind="stable")
    same = np.diff(places[order]) == 0
    crowded = order[np.append(False, same) | np.append(same, False)].tolist()
    times = Counter((int(places[row]), snps.name[row]) for row in crowded)
    found[crowded] = [times[int(places[row]), snps.name[row]] > 1 for row in crowded]
    return found


STEPS: dict[str, SiteStep] = {"open": open_files}
