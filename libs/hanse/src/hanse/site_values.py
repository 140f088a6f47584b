"""What an administrator looks up in a table before a project's schema is written: the values of its columns of text,
and which columns are dates.

Nothing leaves the site: who runs it reads what it prints, and decides what to tell the project's owner.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.wheels import to_install
from hanse_schemas.dates import Days
from hanse_schemas.schema import OpenSchema

if TYPE_CHECKING:
    import pandas as pd

_SLASHES = ("%d/%m/%Y", "%m/%d/%Y")
MOST = 1000
"""Values of one category that a schema may name."""


@dataclass(frozen=True, slots=True)
class ColumnValues:
    """A column that is no number.

    Attributes:
        values: those that enough rows have, sorted; none of a date.
        fewer: rows with others; of a date, with what is no date.
        missing: rows without any.
        kind: that the schema may give it; a date where more than half of the cells are.
        month_unknown: whether all dates have slashes, and no day above 12 shows which number is the month.
    """

    name: str
    values: tuple[str, ...]
    fewer: int
    missing: int
    kind: Literal["category", "text", "date"]
    month_unknown: bool = False


def values_of(path: str | Path, *, at_least: int = 10, columns: tuple[str, ...] = ()) -> tuple[ColumnValues, ...]:
    """The columns of a table that are no numbers, with the values that enough rows have, and those that are dates.

    Args:
        path: a CSV or Parquet file.
        at_least: rows that a value must have to be shown.
        columns: of which; none: of all that are no numbers.

    Raises:
        HanseError: INVALID_INPUT for a file that is no table, or a column that is not there; NOT_FOUND.
    """
    if at_least < 1:
        raise invalid("at_least", at_least, "1 or more")
    file = Path(path)
    frame = _frame(file)
    if unknown := [name for name in columns if name not in frame.columns]:
        raise invalid("columns", unknown[0], f"one of {', '.join(map(str, frame.columns))}")
    chosen = columns or tuple(name for name in frame.columns if frame[name].dtype.kind not in "fiub")
    return tuple(_column(frame[name], str(name), at_least) for name in chosen)


def _column(cells: pd.Series, name: str, at_least: int) -> ColumnValues:
    there = cells.dropna().astype(str)
    missing = len(cells) - len(there)
    for formats in ((), _SLASHES):
        if 2 * (dates := _dates(there.tolist(), formats)) > len(there):
            return ColumnValues(name, (), len(there) - dates, missing, "date", month_unknown=bool(formats))
    counts = there.value_counts()
    enough = sorted(str(value) for value, rows in counts.items() if rows >= at_least)
    told = int(counts[counts >= at_least].sum())
    kind: Literal["category", "text"] = "category" if 0 < len(enough) <= MOST else "text"
    return ColumnValues(name, tuple(enough), len(there) - told, missing, kind)


def _dates(cells: list[str], formats: tuple[str, ...]) -> int:
    """How many of the cells are dates."""
    days, found = Days(cells, formats), 0
    for cell in cells:
        with suppress(ValueError):
            days.of(cell)
            found += 1
    return found


def _frame(file: Path) -> pd.DataFrame:
    try:
        import pandas

        from hanse_schemas.csv_frame import read_frame
    except ImportError:
        raise HanseError(ErrorCode.UNAVAILABLE, "pandas: not installed", hint=to_install("hanse[datapod]")) from None
    try:
        return pandas.read_parquet(file) if file.suffix == ".parquet" else read_frame(file, OpenSchema())
    except FileNotFoundError:
        raise HanseError(ErrorCode.NOT_FOUND, f"{file}: there is no such file") from None
    except (OSError, ValueError) as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"{file}: it is no table: {type(error).__name__}") from None
