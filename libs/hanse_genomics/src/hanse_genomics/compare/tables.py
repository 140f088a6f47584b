"""Association tables read again: Hanse's, and PLINK's as its columns stand."""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_genomics.arrays import Floats

_NA = frozenset({"NA", "na", "nan", "."})
_ADDITIVE = frozenset({"ADD", "TREND"})


@dataclass(frozen=True, slots=True, eq=False)
class Associations:
    """A table's rows of the additive test.

    Attributes:
        snp: names (S,).
        a1: the effect's allele (S,).
        beta: log odds ratios or slopes, float64 (S,); NaN where there is none.
        se: of beta: the table's SE, or beta / STAT.
        log10_p: float64 (S,).
    """

    snp: list[str]
    a1: list[str]
    beta: Floats
    se: Floats
    log10_p: Floats

    def __len__(self) -> int:
        return len(self.snp)

    def aligned(self, snp: Sequence[str], a1: Sequence[str]) -> Associations:
        """The same for given SNPs and effect alleles: effects of the other allele change their sign; NaN for SNPs that
        the table has not."""
        places = {name: at for at, name in enumerate(self.snp)}
        rows = np.array([places.get(name, -1) for name in snp], dtype=np.int64)
        there = rows >= 0
        sign = np.array(
            [1.0 if at < 0 or self.a1[at] in (allele, "0") else -1.0 for at, allele in zip(rows, a1, strict=True)]
        )

        def taken(values: Floats) -> Floats:
            return np.where(there, values[rows], np.nan) if len(values) else np.full(len(rows), np.nan)

        return Associations(list(snp), list(a1), sign * taken(self.beta), taken(self.se), taken(self.log10_p))


def read_associations(path: Path) -> Associations:
    """A table with columns SNP, A1, P, and BETA or OR where there are effects; gzipped when its name ends in `.gz`.

    Raises:
        HanseError: NOT_FOUND; INVALID_INPUT when a column is missing, or a line has too few.
    """
    lines = _lines(path)
    header = next(lines, [])
    at = {name: place for place, name in enumerate(header)}
    missing = [name for name in ("SNP", "A1", "P") if name not in at]
    if missing:
        raise HanseError(ErrorCode.INVALID_INPUT, f"{path}: no column {', '.join(missing)} among {' '.join(header)}")
    rows: list[list[str]] = []
    for line in lines:
        if len(line) < len(header):
            raise HanseError(
                ErrorCode.INVALID_INPUT,
                f"{path}: a row of {len(rows)} or more has {len(line)} of {len(header)} columns",
            )
        if "TEST" not in at or line[at["TEST"]] in _ADDITIVE:
            rows.append(line)

    def numbers(name: str) -> Floats:
        if name not in at:
            return np.full(len(rows), np.nan)
        place = at[name]
        return np.array([math.nan if row[place] in _NA else float(row[place]) for row in rows], dtype=np.float64)

    beta, stat = numbers("BETA"), numbers("STAT")
    with np.errstate(divide="ignore", invalid="ignore"):
        if "BETA" not in at:
            beta = np.log(numbers("OR"))
        se = numbers("SE") if "SE" in at else beta / stat
    log10_p = np.array([_log10(row[at["P"]]) for row in rows], dtype=np.float64)
    return Associations([row[at["SNP"]] for row in rows], [row[at["A1"]] for row in rows], beta, se, log10_p)


def _log10(word: str) -> float:
    """log10 of a printed p-value, however small; NaN for NA. A p-value that was printed as 0 is as small as it goes."""
    if word in _NA:
        return math.nan
    mantissa, _, exponent = word.partition("e")
    value = float(mantissa)
    return math.log10(value) + int(exponent or 0) if value > 0 else -math.inf


def _lines(path: Path) -> Iterator[list[str]]:
    try:
        opened = gzip.open(path, "rt") if path.suffix == ".gz" else path.open()  # noqa: SIM115
    except OSError as error:
        raise HanseError(ErrorCode.NOT_FOUND, f"{path}: cannot be read: {error.strerror}") from None
    with opened as file:
        for line in file:
            yield line.split()
