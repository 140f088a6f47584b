"""The hub's step `open`: the SNPs that all cohorts have, and the two alleles that all of them count by.

Cohorts are told apart only in the counts of what was left out; the list is the same whatever their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_genomics.arrays import Arrays, Given
from hanse_genomics.files import text
from hanse_genomics.files.alleles import Pair, decide
from hanse_genomics.files.snps import LABELS, CommonSnps
from hanse_genomics.hub.intersection import Rows, intersection
from hanse_genomics.hub.step import Finished, HubStep
from hanse_privacy.joint import Fact, Settings
from hanse_schemas.study import Study

_EXAMPLES = 5
_FIRST_VERSION = np.ones(1, dtype=np.int64)
"""Of sites of release 0.1.0, which tell none."""


@dataclass(frozen=True, slots=True, eq=False)
class _Agreed:
    """What the alleles of the common SNPs come to.

    Attributes:
        pairs, verdict: the pair of each verdict, and the number of each SNP's verdict: int64 (S,).
        keep: bool (S,): takes part.
        flipped, incompatible: bool (S, K), by cohort; ambiguous: bool (S,).
    """

    pairs: list[Pair]
    verdict: NDArray[np.int64]
    keep: NDArray[np.bool_]
    flipped: NDArray[np.bool_]
    incompatible: NDArray[np.bool_]
    ambiguous: NDArray[np.bool_]


def common_snps(study: Study, settings: Settings, total: Mapping[str, Arrays], given: Given) -> Finished:
    """The study's SNPs.

    Args:
        total: by cohort what `hanse_genomics.site.opening` makes.

    Returns:
        output `snps` (CommonSnps.arrays); facts: `version`, the lowest of the sites'; `common`, `ambiguous`,
        `incompatible`, `examples`, and `cohorts`: by cohort `snps`, `duplicates`, `negative`, `flipped`,
        `incompatible`.

    Raises:
        HanseError: INVALID_INPUT when the cohorts have no SNP in common, or none with alleles that agree.
    """
    names = sorted(total)
    tables = [total[name] for name in names]
    for name, table in zip(names, tables, strict=True):
        _check(name, table)
    rows, words = intersection(tables)
    if not words:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"the cohorts {', '.join(names)} have no SNP in common: chromosome, position and name must be the same",
            hint="are all files of one genome assembly, with names of one kind (rs numbers)?",
        )
    agreed = _agree(tables, rows, drop_ambiguous=study.ambiguous == "drop")
    examples = _examples(names, tables, rows, words, agreed)
    if not agreed.keep.any():
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"of the {len(words)} SNPs that the cohorts have in common, none has alleles that agree: "
            f"{'; '.join(examples) or 'all are A/T or C/G, which the study drops'}",
            hint="are all files of one genome assembly, with alleles by letter?",
        )
    kept = np.flatnonzero(agreed.keep)
    pairs = [agreed.pairs[at] for at in agreed.verdict[kept].tolist()]
    snps = CommonSnps(
        code=tables[0]["chromosome"][rows[0][kept]],
        position=tables[0]["position"][rows[0][kept]],
        name=[words[at] for at in kept.tolist()],
        first=[first for first, _ in pairs],
        second=[second for _, second in pairs],
    )
    return Finished({"snps": snps.arrays()}, _facts(names, tables, agreed, examples))


def _check(cohort: str, table: Arrays) -> None:
    """Refuse an inconsistent list of a cohort: nothing that a site sends is trusted."""
    version = table.get("version", _FIRST_VERSION)
    if version.shape != (1,) or version.dtype.kind != "i":
        raise _refuse(cohort, f"its version is {version.dtype} of shape {version.shape}, expected one whole number")
    chromosome, position, pair = table["chromosome"], table["position"], table["pair"]
    names = int((table["name"] == 10).sum())
    pairs = {len(text.unpack(table[side])) for side in ("low", "high")}
    whole = all(array.ndim == 1 and array.dtype.kind == "i" for array in (chromosome, position, pair))
    if not whole or len({len(chromosome), len(position), len(pair), names}) != 1 or len(pairs) != 1:
        raise _refuse(cohort, "its columns are not of one length and of whole numbers")
    if not len(pair):
        return
    if min(chromosome.min(), position.min(), pair.min()) < 0 or chromosome.max() >= len(LABELS):
        raise _refuse(
            cohort, f"it has a chromosome, a position or a pair below 0, or a chromosome above {len(LABELS) - 1}"
        )
    if pair.max() >= max(pairs):
        raise _refuse(cohort, f"it has pair {pair.max()}, expected one of its {max(pairs)}")


def _refuse(cohort: str, what: str) -> HanseError:
    return HanseError(ErrorCode.INVALID_INPUT, f"the list of SNPs of {cohort}: {what}")


def _agree(tables: Sequence[Arrays], rows: Sequence[Rows], *, drop_ambiguous: bool) -> _Agreed:
    """Decide for each combination of pairs that occurs: there are few, however many SNPs."""
    listed: list[Pair] = []
    number: dict[Pair, int] = {}
    combined = np.zeros(len(rows[0]), dtype=np.int64)
    combinations: NDArray[np.int64] = np.zeros((1, 0), dtype=np.int64)
    for table, own in zip(tables, rows, strict=True):
        numbers = [number.setdefault(pair, len(number)) for pair in _pairs(table)]
        listed = list(number)
        both, combined = np.unique(
            combined * len(listed) + np.array(numbers, dtype=np.int64)[table["pair"][own]], return_inverse=True
        )
        combinations = np.column_stack([combinations[both // len(listed)], both % len(listed)])
    verdicts = [decide([listed[at] for at in combination]) for combination in combinations.tolist()]
    flipped = np.array([one.flipped for one in verdicts], dtype=bool)[combined]
    incompatible = np.array([one.incompatible for one in verdicts], dtype=bool)[combined]
    unclear = np.array([one.ambiguous for one in verdicts], dtype=bool)[combined]
    keep: NDArray[np.bool_] = np.logical_not(incompatible.any(axis=1))
    if drop_ambiguous:
        keep &= ~unclear
    return _Agreed([one.pair for one in verdicts], combined, keep, flipped, incompatible, unclear)


def _facts(names: Sequence[str], tables: Sequence[Arrays], agreed: _Agreed, examples: Sequence[str]) -> dict[str, Fact]:
    compatible = ~agreed.incompatible.any(axis=1)
    cohorts: dict[str, Fact] = {
        cohort: {
            "snps": len(table["position"]) + int(table["left_out"].sum()),
            "duplicates": int(table["left_out"][0]),
            "negative": int(table["left_out"][1]),
            "flipped": int(agreed.flipped[agreed.keep, at].sum()),
            "incompatible": int(agreed.incompatible[:, at].sum()),
        }
        for at, (cohort, table) in enumerate(zip(names, tables, strict=True))
    }
    return {
        "version": min(int(table.get("version", _FIRST_VERSION)[0]) for table in tables),
        "common": int(agreed.keep.sum()),
        "ambiguous": int(agreed.ambiguous[compatible].sum()),
        "incompatible": int((~compatible).sum()),
        "examples": list(examples),
        "cohorts": cohorts,
    }


def _examples(
    names: Sequence[str], tables: Sequence[Arrays], rows: Sequence[Rows], words: Sequence[str], agreed: _Agreed
) -> list[str]:
    """In words, the first SNPs whose alleles do not agree."""
    wrong = np.flatnonzero(agreed.incompatible.any(axis=1))[:_EXAMPLES].tolist()
    pairs = [_pairs(table) for table in tables] if wrong else []
    told = []
    for at in wrong:
        has = [
            f"{'/'.join(own[int(table['pair'][row[at]])])} in {name}"
            for name, own, table, row in zip(names, pairs, tables, rows, strict=True)
        ]
        told.append(f"{words[at]} is {', '.join(has)}")
    return told


def _pairs(table: Arrays) -> list[Pair]:
    return list(zip(text.unpack(table["low"]), text.unpack(table["high"]), strict=True))


STEPS: dict[str, HubStep] = {"open": common_snps}
