"""Groups of samples that genotypes are counted in. Names and choice alone: no numpy here.

A group is `status[/sex]`. Which are needed depends on the test, on whether there are non-founders (PLINK takes allele
frequencies and Hardy-Weinberg of founders), and on the chromosome.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, assert_never

from hanse_schemas.study import Study

Ploidy = Literal["diploid", "x", "y", "mt"]
AUTOSOMES = 22
"""Chromosomes 1 to 22, of which everybody has two."""

STATUS = (
    "all", "founder", "complete", "case", "control", "other", "founder_case", "founder_control", "founder_other",
    "complete_case", "complete_control",
)  # fmt: skip
SEXES = ("male", "rest")
ALL = tuple(f"{status}/{sex}" for status in STATUS for sex in SEXES)
"""In the order of the array `people` of step `samples`."""


def size(sizes: Mapping[str, int], status: str) -> int:
    """Samples of a status, both sexes."""
    return sum(sizes[f"{status}/{sex}"] for sex in SEXES)


def needed(study: Study, sizes: Mapping[str, int], ploidy: Ploidy) -> list[str]:
    """The groups to be counted.

    Args:
        sizes: samples over all cohorts by group.
    """
    if study.is_binary:
        statuses = ["case", "control"]
        if size(sizes, "other"):
            statuses.append("other")
        if size(sizes, "founder") < size(sizes, "all"):
            statuses += [f"founder_{status}" for status in statuses]
        if study.is_regression and size(sizes, "complete") < size(sizes, "case") + size(sizes, "control"):
            statuses += ["complete_case", "complete_control"]
    else:
        statuses = ["all"]
        if size(sizes, "founder") < size(sizes, "all"):
            statuses.append("founder")
        if size(sizes, "complete") < size(sizes, "all"):
            statuses.append("complete")
    match ploidy:
        case "x":
            return [f"{status}/{sex}" for status in statuses for sex in SEXES]
        case "y":
            return [f"{status}/male" for status in statuses]
        case "diploid" | "mt":
            return statuses
        case unknown:
            assert_never(unknown)


def group_size(sizes: Mapping[str, int], group: str) -> int:
    """Samples of a group."""
    return sizes[group] if "/" in group else size(sizes, group)
