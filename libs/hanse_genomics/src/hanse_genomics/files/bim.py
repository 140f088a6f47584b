""".bim files: the SNPs, in the order of the .bed file. Columns: chromosome, name, centimorgans, position, A1, A2."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from hanse_genomics.files.lines import TextTable, read_table
from hanse_genomics.files.pairs import Pairs
from hanse_genomics.files.snps import LABELS, MT, UNKNOWN, XY, SnpTable

_CODES = {label: code for code, label in enumerate(LABELS)} | {str(code): code for code in range(27)}
_CODES |= {"M": MT, "PAR1": XY, "PAR2": XY}
_NUMBER = re.compile(r"-?[0-9]{1,10}")
_LAST = 2**31 - 2
"""PLINK's largest position."""


def read_bim(path: Path) -> SnpTable:
    """Read a .bim file.

    Raises:
        HanseError: NOT_FOUND; INVALID_INPUT when a line has not six columns, a chromosome that PLINK does not know, a
            position that is not a whole number, or twice the same allele; when it is empty.
    """
    table = read_table(path, 6, "chromosome, name, centimorgans, position, A1, A2")
    table.require("SNP")
    alleles = Pairs.of(_alleles(table, 4), _alleles(table, 5))
    for number, (a1, a2) in enumerate(alleles.listed):
        if a1 == a2 != UNKNOWN:
            row = int(np.argmax(alleles.number == number))
            raise table.refuse(row, "A2", a2, "another allele than A1, or 0 where it is unknown")
    return SnpTable(_chromosomes(table), _positions(table), table.column(1), alleles)


def _chromosomes(table: TextTable) -> np.ndarray:
    words = table.column(0)
    codes: dict[str, int] = {}
    for word in set(words):
        code = _CODES.get(word.upper().removeprefix("CHR"))
        if code is None:
            raise table.refuse(
                words.index(word), "the chromosome", word, "0 to 26, X, Y, XY or MT",
                hint="leave other contigs out: plink --bfile ... --allow-extra-chr --chr 1-26 --make-bed",
            )  # fmt: skip
        codes[word] = code
    return np.fromiter(map(codes.__getitem__, words), np.int8, len(words))


def _positions(table: TextTable) -> np.ndarray:
    words = table.column(3)
    together = " ".join(words)
    octets = np.frombuffer(together.encode(), dtype=np.uint8)
    if not ((octets == 32) | (octets - np.uint8(48) < 10)).all():
        for row, word in enumerate(words):
            if not _NUMBER.fullmatch(word):
                raise table.refuse(row, "the position", word, "a whole number of base pairs")
    # One call for all of them; a number of more digits than fit is the largest there is, and refused below.
    positions = np.fromstring(together, dtype=np.int64, sep=" ")
    if int(positions.max()) > _LAST:
        row = int(positions.argmax())
        raise table.refuse(row, "the position", words[row], f"at most {_LAST}")
    return positions


def _alleles(table: TextTable, number: int) -> list[str]:
    """A column of alleles, with one name for the unknown one."""
    words = table.column(number)
    return [UNKNOWN if word == "." else word for word in words] if "." in words else words
