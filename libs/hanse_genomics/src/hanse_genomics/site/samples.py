"""A site's step `samples`: how many samples there are of every kind; and where the study's SNPs lie in its files.

How many SNPs were turned round is in the masked sum, too, because it depends on the samples which allele is the rarer
one, A1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import invalid
from hanse_genomics import groups
from hanse_genomics.arrays import Arrays, Given
from hanse_genomics.site.columns import complete
from hanse_genomics.site.matched import learn
from hanse_genomics.site.step import SiteStep, SiteStudy
from hanse_privacy.joint import Settings

Members = NDArray[np.bool_]


def members(site: SiteStudy, group: str) -> Members:
    """Who belongs to a group (`hanse_genomics.groups`): bool (n,).

    Raises:
        HanseError: INVALID_INPUT for a group that is not known: it would be everybody.
    """
    status, _, sex = group.partition("/")
    if status not in groups.STATUS or sex not in ("", *groups.SEXES):
        raise invalid("groups", group, "one of " + ", ".join((*groups.STATUS, *groups.ALL)))
    cohort = site.cohort
    chosen = np.ones(cohort.samples, dtype=bool)
    known = ~np.isnan(cohort.phenotype)
    for word in status.split("_"):
        match word:
            case "all":
                pass
            case "founder":
                chosen &= cohort.founder
            case "complete":
                chosen &= complete(site)
            case "case":
                chosen &= cohort.phenotype == 1
            case "control":
                chosen &= cohort.phenotype == 0
            case "other":
                chosen &= ~known
            case unknown:
                raise invalid("groups", unknown, "a word of groups.STATUS that says who is meant")
    if sex:
        chosen &= (cohort.sex == 1) == (sex == "male")
    return chosen


def samples(site: SiteStudy, settings: Settings, given: Given) -> Arrays:
    """Numbers of samples.

    Args:
        given: `snps`, of the step `open`.

    Returns:
        people int64: samples by `groups.ALL`; of a quantity nobody is a case or a control. swapped int64 (1,): SNPs of
        the study whose A1 in the site's files is not the allele that the study counts, so that copies were turned.
    """
    found = learn(site, given["snps"])
    binary = site.study.is_binary
    counts = [
        0 if not binary and ("case" in name or "control" in name) else int(members(site, name).sum())
        for name in groups.ALL
    ]
    return {
        "people": np.array(counts, dtype=np.int64),
        "swapped": np.array([found.swapped.sum()], dtype=np.int64),
    }


STEPS: dict[str, SiteStep] = {"samples": samples}
