"""A site's step `open`: the SNPs that it has, so that the hub finds those in common. Not masked: it is what must be
compared word by word. Nothing in it depends on any sample's genotype: alleles go in alphabetical order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from hanse_genomics.arrays import Arrays
from hanse_genomics.files import text
from hanse_genomics.files.snps import SnpTable
from hanse_genomics.site.step import SiteStep, SiteStudy
from hanse_genomics.verbs import Fact


def open_files(site: SiteStudy, settings: Mapping[str, Fact], given: Mapping[str, Arrays]) -> Arrays:  # noqa: ARG001
    """The cohort's SNPs.

    Returns:
        chromosome int8, position int64, name (text) and pair int32 (S,), in the .bim file's order; low, high (text,
        (P,)): the two alleles of each pair, sorted; left_out int64 (2,): SNPs that stand more than once, and such with
        a negative position.
    """
    return offered(site.cohort.snps)


def offered(snps: SnpTable) -> Arrays:
    """What of a .bim file takes part: SNPs with a position that is not negative, and that stand there once."""
    keys = list(zip(snps.code.tolist(), snps.position.tolist(), snps.name, strict=True))
    placed = snps.position >= 0
    keep = placed
    if len(set(keys)) != len(keys):
        times = Counter(keys)
        # Which of two lines is meant, nobody can tell: neither takes part.
        keep = placed & np.array([times[key] == 1 for key in keys])
    left_out = np.array([(placed & ~keep).sum(), (~placed).sum()], dtype=np.int64)
    rows = np.flatnonzero(keep).tolist()
    # A file has few pairs of alleles, most of them a dozen: SNPs have the number of theirs.
    sorted_pairs: dict[tuple[str, str], tuple[str, str]] = {}
    number: dict[tuple[str, str], int] = {}
    codes = []
    for written in zip([snps.a1[row] for row in rows], [snps.a2[row] for row in rows], strict=True):
        pair = sorted_pairs.get(written)
        if pair is None:
            one, other = written
            pair = sorted_pairs[written] = (min(one, other), max(one, other))
        codes.append(number.setdefault(pair, len(number)))
    return {
        "chromosome": snps.code[keep],
        "position": snps.position[keep],
        "name": text.pack([snps.name[row] for row in rows]),
        "pair": np.array(codes, dtype=np.int32),
        "low": text.pack(low for low, _ in number),
        "high": text.pack(high for _, high in number),
        "left_out": left_out,
    }


STEPS: dict[str, SiteStep] = {"open": open_files}
