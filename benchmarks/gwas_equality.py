"""Federated results beside PLINK's table of the pooled files: every printed digit, for every SNP."""

from __future__ import annotations

import gzip
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

_NA = frozenset({"NA", "nan", "-nan", "inf"})
_UNTURNED = frozenset({"NMISS", "CHISQ", "P", "SE"})
_BESIDE = frozenset({"CHR", "SNP", "BP", "TEST"})


@dataclass(frozen=True, slots=True)
class Equality:
    """Of all SNPs.

    Attributes:
        snps: in both tables; values: printed by PLINK as numbers (alleles included) and compared.
        tied: SNPs whose alleles are equally frequent, where PLINK takes the file's A1 and Hanse, whatever the files,
            the one that is first in the alphabet: of these, columns that depend on it are not compared.
        different: values that are printed otherwise, with the first few: SNP, column, PLINK's, ours.
        largest: largest relative difference among those.
        absent: SNPs that one of the tables lacks.
    """

    snps: int
    values: int
    tied: int
    different: int
    absent: int
    largest: float
    examples: tuple[tuple[str, str, str, str], ...]


def compare(ours: Path, plinks: Path, tied: Collection[str]) -> Equality:
    """Compare all columns that both tables have. PLINK's NA is not compared: Hanse says why, where it has none either.

    Args:
        ours: `results.tsv.gz`; plinks: PLINK's table.
        tied: names of SNPs whose alleles are equally frequent.
    """
    theirs = _lines(plinks)
    header = next(theirs)
    mine = _lines(ours)
    own_header = next(mine)
    columns = [(name, header.index(name), own_header.index(name)) for name in own_header if name in header]
    columns = [column for column in columns if column[0] not in _BESIDE]
    key, own_key = header.index("SNP"), own_header.index("SNP")
    known = {words[key]: words for words in theirs}
    total = len(known)
    snps = values = different = turned = 0
    largest = 0.0
    examples: list[tuple[str, str, str, str]] = []
    for words in mine:
        reference = known.pop(words[own_key], None)
        if reference is None:
            total += 1
            continue
        snps += 1
        tie = words[own_key] in tied
        turned += tie
        for name, at, own_at in columns:
            if reference[at] in _NA or (tie and name not in _UNTURNED):
                continue
            values += 1
            if reference[at] != words[own_at]:
                different += 1
                largest = max(largest, _relative(reference[at], words[own_at]))
                if len(examples) < 10:
                    examples.append((words[own_key], name, reference[at], words[own_at]))
    return Equality(snps, values, turned, different, total - snps, largest, tuple(examples))


def _relative(one: str, other: str) -> float:
    try:
        first, second = float(one), float(other)
    except ValueError:
        return float("inf")
    return abs(first - second) / max(abs(first), abs(second), 1e-300)


def _lines(path: Path) -> Iterator[list[str]]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        for line in file:
            yield line.split()
