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
from hanse_genomics.verbs import Settings

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
    names, a1, a2 = snps.name, snps.a1, snps.a2
    if not keep.all():
        rows = np.flatnonzero(keep).tolist()
        names, a1, a2 = ([column[row] for row in rows] for column in (names, a1, a2))
    # A file has few pairs of alleles, most of them a dozen: SNPs have the number of theirs.
    sorted_pairs: dict[tuple[str, str], tuple[str, str]] = {}
    number: dict[tuple[str, str], int] = {}
    codes = []
    for written in zip(a1, a2, strict=True):
        pair = sorted_pairs.get(written)
        if pair is None:
            one, other = written
            pair = sorted_pairs[written] = (min(one, other), max(one, other))
        codes.append(number.setdefault(pair, len(number)))
    return {
        "chromosome": snps.code[keep],
        "position": snps.position[keep],
        "name": text.pack(names),
        "pair": np.array(codes, dtype=np.int32),
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
