"""Two tables laid side by side, printed digit by printed digit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hanse_genomics.compare.tables import table_rows

_NA = frozenset({"NA", "nan"})


@dataclass(frozen=True, slots=True)
class Differences:
    """Where two tables differ.

    Attributes:
        snps: of which a column is not printed alike.
        largest: largest relative difference of two numbers, 0 where all are alike; infinite where one of them is no
            number, or of another sign, or a word.
    """

    snps: int
    largest: float


def differences(ours: Path, theirs: Path) -> Differences:
    """Compare the columns that both tables have, where the other table has a number or a word.

    Raises:
        HanseError: NOT_FOUND; INVALID_INPUT when one is no table of associations.
    """
    mine = {row["SNP"]: row for row in table_rows(ours)}
    snps, largest = 0, 0.0
    for row in table_rows(theirs):
        own = mine.get(row["SNP"], row)
        pairs = [(own[name], row[name]) for name in row if name in own and row[name] not in _NA]
        sizes = [_size(*pair) for pair in pairs if pair[0] != pair[1]]
        snps += bool(sizes)
        largest = max([largest, *sizes])
    return Differences(snps, largest)


def _size(ours: str, theirs: str) -> float:
    try:
        x, y = float(ours), float(theirs)
    except ValueError:
        return float("inf")
    scale = max(abs(x), abs(y))
    found = abs(x - y) / scale if scale > 0 else 0.0
    return found if found == found else float("inf")
