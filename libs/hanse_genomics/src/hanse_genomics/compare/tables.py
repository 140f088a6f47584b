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


def table_rows(path: Path) -> list[dict[str, str]]:
    """A table's rows of the additive test, each by column; gzipped when its name ends in `.gz`.

    Raises:
        HanseError: NOT_FOUND; INVALID_INPUT when a column is missing, or a line has too few.
    """
    lines = _lines(path)
    header = next(lines, [])
    missing = [name for name in ("SNP", "A1", "P") if name not in header]
    if missing:
        raise HanseError(ErrorCode.INVALID_INPUT, f"{path}: no column {', '.join(missing)} among {' '.join(header)}")
    rows: list[dict[str, str]] = []
    for line in lines:
        if len(line) < len(header):
            raise HanseError(
                ErrorCode.INVALID_INPUT,
                f"{path}: after {len(rows)} rows of the test, one has {len(line)} of {len(header)} columns",
            )
        row = dict(zip(header, line, strict=False))
        if row.get("TEST", "ADD") in _ADDITIVE:
            rows.append(row)
    return rows


def read_associations(path: Path) -> Associations:
    """A table with columns SNP, A1, P, and BETA or OR where there are effects.

    Raises:
        HanseError: as `table_rows`.
    """
    rows = table_rows(path)
    there = rows[0].keys() if rows else ()

    def numbers(name: str) -> Floats:
        words = [row.get(name, "NA") for row in rows]
        return np.array([math.nan if word in _NA else float(word) for word in words], dtype=np.float64)

    with np.errstate(divide="ignore", invalid="ignore"):
        beta = numbers("BETA") if "BETA" in there else np.log(numbers("OR"))
        se = numbers("SE") if "SE" in there else beta / numbers("STAT")
    log10_p = np.array([_log10(row["P"]) for row in rows], dtype=np.float64)
    return Associations([row["SNP"] for row in rows], [row["A1"] for row in rows], beta, se, log10_p)


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
