""".fam files: the samples, in the order of the .bed file. Six columns: FID IID father mother sex phenotype."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hanse_genomics.files.lines import TextTable, is_header, read_table, refusal

Person = tuple[str, str]
"""Family id and individual id: what samples are aligned by."""


@dataclass(frozen=True, slots=True, eq=False)
class Fam:
    """The samples.

    Attributes:
        ids: (n,) pairs of family id and individual id, all different.
        founder: bool (n,): neither parent is known.
        sex: int8 (n,): 1 male, 2 female, 0 unknown.
        table: the words, for the phenotype in the sixth column.
    """

    ids: list[Person]
    founder: NDArray[np.bool_]
    sex: NDArray[np.int8]
    table: TextTable


def read_fam(path: Path) -> Fam:
    """Read a .fam file.

    Raises:
        HanseError: NOT_FOUND; INVALID_INPUT when a line has not six columns, the first is a header, a person stands
            twice, or it is empty.
    """
    table = read_table(path, 6, "family id, individual id, father, mother, sex, phenotype")
    table.require("sample")
    if is_header(table.words[:2]):
        raise refusal(
            path, table.line(0), "expected the first sample: a .fam file has no header", " ".join(table.words[:6]),
            hint="take the line out",
        )  # fmt: skip
    ids = list(zip(table.column(0), table.column(1), strict=True))
    check_distinct(table, ids)
    founder = [father == "0" and mother == "0" for father, mother in zip(table.column(2), table.column(3), strict=True)]
    sex = [1 if code == "1" else 2 if code == "2" else 0 for code in table.column(4)]
    return Fam(ids, np.array(founder, dtype=bool), np.array(sex, dtype=np.int8), table)


def check_distinct(table: TextTable, ids: Sequence[Person]) -> None:
    """Refuse a file in which a person stands twice: nobody can tell which line is meant."""
    if len(set(ids)) == len(ids):
        return
    seen: dict[Person, int] = {}
    for row, person in enumerate(ids):
        if person in seen:
            raise table.refuse(
                row,
                "the person (FID, IID)",
                " ".join(person),
                f"persons that differ: line {table.line(seen[person])} has this one",
            )
        seen[person] = row
