"""The hub's step `open`: the SNPs that all cohorts have, and the two alleles that all of them count by.

Cohorts are told apart only in the counts of what was left out; the list is the same whatever their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.study import Study
from hanse_genomics.arrays import Arrays
from hanse_genomics.files import text
from hanse_genomics.files.alleles import ambiguous, oriented
from hanse_genomics.files.snps import UNKNOWN, CommonSnps
from hanse_genomics.hub.step import Finished, HubStep
from hanse_genomics.verbs import Fact

Pair = tuple[str, str]
_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be done with a SNP, given the cohorts' alleles.

    Attributes:
        pair: the study's alleles, in alphabetical order.
        flipped, incompatible: by cohort: it has them from the other strand; it has others.
        ambiguous: strands cannot be told apart: A/T, C/G.
    """

    pair: Pair
    flipped: tuple[bool, ...]
    incompatible: tuple[bool, ...]
    ambiguous: bool


@dataclass(slots=True)
class _Tally:
    flipped: list[int]
    incompatible: list[int]
    snps_incompatible: int = 0
    ambiguous: int = 0
    examples: list[str] = field(default_factory=list)


def common_snps(
    study: Study,
    settings: Mapping[str, Fact],  # noqa: ARG001
    total: Mapping[str, Arrays],
    given: Mapping[str, Arrays],  # noqa: ARG001
) -> Finished:
    """The study's SNPs.

    Args:
        total: by cohort what `hanse_genomics.site.opening` makes.

    Returns:
        output `snps` (CommonSnps.arrays); facts: `common`, `ambiguous`, `incompatible`, `examples`, and `cohorts`: by
        cohort `snps`, `duplicates`, `negative`, `flipped`, `incompatible`.

    Raises:
        HanseError: INVALID_INPUT when the cohorts have no SNP in common, or none with alleles that agree.
    """
    names = sorted(total)
    tables = [total[name] for name in names]
    rows = _intersection(tables)
    if not len(rows[0]):
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"the cohorts {', '.join(names)} have no SNP in common: chromosome, position and name must be the same",
            hint="are all files of one genome assembly, with names of one kind (rs numbers)?",
        )
    first = tables[0]
    code = first["chromosome"][rows[0]]
    position = first["position"][rows[0]]
    words = text.unpack(first["name"])
    name = [words[row] for row in rows[0].tolist()]
    keep, pairs, tally = _agree(
        names, [_pairs(table, own) for table, own in zip(tables, rows, strict=True)], name, study
    )
    if not len(keep):
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"of the {len(name)} SNPs that the cohorts have in common, none has alleles that agree: "
            f"{'; '.join(tally.examples) or 'all are A/T or C/G, which the study drops'}",
            hint="are all files of one genome assembly, with alleles by letter?",
        )
    snps = CommonSnps(
        code[keep],
        position[keep],
        [name[at] for at in keep.tolist()],
        [pair[0] for pair in pairs],
        [pair[1] for pair in pairs],
    )
    cohorts: dict[str, Fact] = {
        cohort: {
            "snps": len(table["position"]) + int(table["left_out"].sum()),
            "duplicates": int(table["left_out"][0]),
            "negative": int(table["left_out"][1]),
            "flipped": tally.flipped[at],
            "incompatible": tally.incompatible[at],
        }
        for at, (cohort, table) in enumerate(zip(names, tables, strict=True))
    }
    facts: dict[str, Fact] = {
        "common": len(snps),
        "ambiguous": tally.ambiguous,
        "incompatible": tally.snps_incompatible,
        "examples": list(tally.examples),
        "cohorts": cohorts,
    }
    return Finished({"snps": snps.arrays()}, facts)


def decide(pairs: Sequence[Pair]) -> Verdict:
    """The study's alleles of a SNP: the pair that most cohorts have, among equals the alphabetically first.

    A cohort in which an allele is unknown has no vote; where it is unknown to all, what they know together is the pair.

    Args:
        pairs: by cohort its two alleles in alphabetical order; "0" is unknown.
    """
    votes = Counter(pair for pair in pairs if UNKNOWN not in pair)
    if votes:
        pair = min(votes, key=lambda one: (-votes[one], one))
    else:
        known = sorted({allele for pair in pairs for allele in pair} - {UNKNOWN})
        one, other = (*known, UNKNOWN, UNKNOWN)[:2]
        pair = (min(one, other), max(one, other))
    turns = [oriented(*own, *pair) for own in pairs]
    return Verdict(
        pair=pair,
        flipped=tuple(turn is not None and turn[1] for turn in turns),
        incompatible=tuple(turn is None for turn in turns),
        ambiguous=ambiguous(*pair),
    )


def _agree(
    names: Sequence[str], pairs: Sequence[Sequence[Pair]], snps: Sequence[str], study: Study
) -> tuple[NDArray[np.int64], list[Pair], _Tally]:
    """SNPs to keep, their pairs, and the counts."""
    tally = _Tally([0] * len(names), [0] * len(names))
    verdicts: dict[tuple[Pair, ...], Verdict] = {}
    keep: list[int] = []
    kept: list[Pair] = []
    for at, combination in enumerate(zip(*pairs, strict=True)):
        verdict = verdicts.get(combination)
        if verdict is None:
            verdict = verdicts[combination] = decide(combination)
        if any(verdict.incompatible):
            tally.snps_incompatible += 1
            for cohort, wrong in enumerate(verdict.incompatible):
                tally.incompatible[cohort] += wrong
            if len(tally.examples) < _EXAMPLES:
                has = (f"{'/'.join(pair)} in {name}" for name, pair in zip(names, combination, strict=True))
                tally.examples.append(f"{snps[at]} is {', '.join(has)}")
            continue
        if verdict.ambiguous:
            tally.ambiguous += 1
            if study.ambiguous == "drop":
                continue
        if any(verdict.flipped):
            for cohort, other in enumerate(verdict.flipped):
                tally.flipped[cohort] += other
        keep.append(at)
        kept.append(verdict.pair)
    return np.array(keep, dtype=np.int64), kept, tally


def _pairs(table: Arrays, rows: NDArray[np.int64]) -> list[Pair]:
    low, high = text.unpack(table["low"]), text.unpack(table["high"])
    return [(low[row], high[row]) for row in rows.tolist()]


def _intersection(tables: Sequence[Arrays]) -> list[NDArray[np.int64]]:
    """By cohort the rows of the SNPs that all have, in genome order: chromosome, position, name."""
    keys = [
        dict(
            zip(
                zip(t["chromosome"].tolist(), t["position"].tolist(), text.unpack(t["name"]), strict=True),
                range(len(t["position"])),
                strict=True,
            )
        )
        for t in tables
    ]
    common = set(keys[0]).intersection(*keys[1:])
    ordered = sorted(common)
    return [np.array([own[key] for key in ordered], dtype=np.int64) for own in keys]


STEPS: dict[str, HubStep] = {"open": common_snps}
