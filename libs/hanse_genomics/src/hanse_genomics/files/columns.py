"""Values by person: .pheno and .cov files. They are laid beside the .fam file by (FID, IID), never by order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hanse_fabric.errors import ErrorCode, unfit
from hanse_genomics.arrays import Floats
from hanse_genomics.files.fam import Person, check_distinct
from hanse_genomics.files.lines import TextTable, read_headed, refusal

MISSING = -9.0
"""PLINK's number for a value that is not known."""

_NOT_KNOWN = {"NA": math.nan, "na": math.nan, "NaN": math.nan, "nan": math.nan, "NAN": math.nan, "-9": math.nan}


def read_columns(path: Path, names: Sequence[str], people: Sequence[Person]) -> Floats:
    """Columns of a file with a header, aligned with the samples.

    Args:
        names: the columns, in the order wanted.
        people: the samples, in the order of the .fam file. One whom the file does not have has missing values; people
            of the file who are no samples are passed over.

    Returns:
        float64 (n, len(names)); NaN where a value is missing: -9, NA or nan.

    Raises:
        HanseError: NOT_FOUND; INVALID_INPUT when the header, a column or a value is not as it should be, a person
            stands twice, or none of the samples is in the file.
    """
    header, table = read_headed(path)
    table.require("person")
    wanted = []
    for name in names:
        if name not in header[2:]:
            raise refusal(
                path, 1, f"has no column {name}, which the study asks for", ", ".join(header[2:12]) or "no column",
                hint="every cohort's file must have the study's columns, under the same names",
            )  # fmt: skip
        wanted.append(header.index(name, 2))
    ids = list(zip(table.column(0), table.column(1), strict=True))
    check_distinct(table, ids)
    row_of = {person: row for row, person in enumerate(ids)}
    rows = np.array([row_of.get(person, -1) for person in people], dtype=np.int64)
    if not (rows >= 0).any():
        raise unfit(
            f"{path.name}: none of its persons is in the .fam file",
            f"{table.rows} persons; the .fam file's first is {' '.join(people[0])}",
            code=ErrorCode.INVALID_INPUT, hint="rows are aligned by FID and IID, both",
        )  # fmt: skip
    values = np.full((len(people), len(wanted)), np.nan)
    here = rows >= 0
    for at, column in enumerate(wanted):
        values[here, at] = numbers(table, column, header[column])[rows[here]]
    return values


def numbers(table: TextTable, column: int, name: str) -> Floats:
    """A column as float64 (rows,), NaN where it is missing.

    Raises:
        HanseError: INVALID_INPUT for what is no finite number, naming the line.
    """
    words = table.column(column)
    values = np.empty(len(words))
    for row, word in enumerate(words):
        known = _NOT_KNOWN.get(word)
        if known is not None:
            values[row] = known
            continue
        try:
            value = float(word)
        except ValueError:
            value = math.inf
        if not math.isfinite(value) or "_" in word:
            raise table.refuse(row, name, word, "a number, or -9, NA or nan where it is missing")
        values[row] = math.nan if value == MISSING else value
    return values
