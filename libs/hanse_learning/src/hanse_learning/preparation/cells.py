"""Cells of a raw column, however they came (text of a file, numbers of a frame), as arrays: numbers, or texts.

A cell that is empty, None or not a number (NaN) is missing: NaN among numbers, None among texts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import HanseError, unfit
from hanse_schemas.dates import Days

Cells = NDArray[Any]
"""(n,) float64 with NaN for what is missing; of categories, objects: str, or None."""

LARGEST = 1e20
"""Numbers as large are mistakes: exact sums of their squares would not fit."""

_SHOWN = "such as 2026-03-31, 31.3.2026 or 3/31/2026 (where no day is above 12, the schema must say formats)"
_BOOLEANS = {
    **dict.fromkeys(("true", "yes", "t", "y", "1", "1.0"), 1.0),
    **dict.fromkeys(("false", "no", "f", "n", "0", "0.0"), 0.0),
}


@runtime_checkable
class InBlocks(Protocol):
    """A table that is larger than memory."""

    def blocks(self) -> Iterator[Mapping[str, Cells]]:
        """The columns of rows that are to be worked on at once, from the first to the last."""
        ...


class KnownColumn(Protocol):
    """What is known of a column: a rule's, or a prepared column."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...


def blocks(table: Mapping[str, Cells]) -> Iterable[Mapping[str, Cells]]:
    """The table, in the blocks that it is to be worked on in: one, where it is in memory."""
    return table.blocks() if isinstance(table, InBlocks) else (table,)


def cells_of(
    columns: Iterable[KnownColumn], table: Mapping[str, Sequence[Any]] | Any, where: str = "table"
) -> dict[str, Cells]:
    """The cells of the columns of a table, but for those of kind text: a mapping of sequences, or a frame of pandas.

    Args:
        where: what the table is called in messages.

    Raises:
        HanseError: SCHEMA_MISMATCH naming column and row (from 1) of the first cell that is of another kind; what it
            holds stays at the site (`unfit`).
    """
    found = {}
    for column in columns:
        if column.kind == "text":
            continue
        if column.name not in table:
            raise unfit(f"{where}: column {column.name} is missing")
        if np.ndim(table[column.name]) != 1:
            raise unfit(f"{where}: column {column.name} is there more than once, or holds more than one cell a row")
        cells, bad = read(column.kind, table[column.name], getattr(column, "formats", ()))
        if len(bad) and bad.any():
            at = int(np.argmax(bad))
            given = repr(np.asarray(table[column.name], dtype=object)[at])
            raise refused(where, column.name, "row", at + 1, expected(column.kind, ()), given)
        found[column.name] = cells
    return found


def read(
    kind: str, given: Sequence[Any] | NDArray[Any], formats: Sequence[str] = (), shown: Sequence[str] = ()
) -> tuple[Cells, NDArray[np.bool_]]:
    """(the cells, which of them are of another kind).

    Args:
        kind: of the column: number, boolean, date, category or text.
        formats: of dates; none: see `dates`.
        shown: further cells of the same column, by which it may be clear where the day of a date stands.
    """
    values = np.asarray(given)
    if kind in ("category", "text"):
        return _texts(values), np.zeros(len(values), bool)
    if kind == "number" and values.dtype.kind in "fiub":
        numbers = values.astype(np.float64)
        return numbers, np.isinf(numbers) | (np.abs(np.nan_to_num(numbers)) >= LARGEST)
    if kind == "boolean" and values.dtype.kind in "fiub":
        numbers = values.astype(np.float64)
        return numbers, ~np.isnan(numbers) & (numbers != 0) & (numbers != 1)
    if kind == "date" and values.dtype.kind == "M":
        days = values.astype("datetime64[us]")
        since = (days - np.datetime64("1970-01-01")) / np.timedelta64(1, "D")
        return np.where(np.isnat(days), np.nan, since), np.zeros(len(values), bool)
    of: Callable[[Any], float] = {
        "number": _number, "boolean": _boolean,
        "date": Days([*values.tolist(), *shown] if kind == "date" else (), formats).of,
    }[kind]  # fmt: skip
    numbers = np.full(len(values), np.nan)
    bad = np.zeros(len(values), bool)
    for row, cell in enumerate(values.tolist()):
        if is_missing(cell):
            continue
        try:
            numbers[row] = of(cell)
        except (ValueError, TypeError, KeyError, OverflowError):
            bad[row] = True
    return numbers, bad


def is_missing(cell: Any) -> bool:
    """Whether there is nothing in a cell."""
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return True
    return cell is not cell or str(cell) in ("nan", "NaT", "<NA>")


def refused(where: str, name: str, row: str, number: int, wanted: str, found: object = "") -> HanseError:
    """The error for a cell: names the column, the row, and what was expected."""
    return unfit(
        f"{where}: column {name}, {row} {number}: {wanted} was expected", found,
        hint="correct the data, or the project's schema; the site's log says what was found",
    )  # fmt: skip


def expected(kind: str, formats: Sequence[str]) -> str:
    """What a cell of a kind is, in words."""
    match kind:
        case "number":
            return "a finite number below 1e20"
        case "boolean":
            return "true or false, yes or no, 1 or 0"
        case "date":
            return "a date " + (" or ".join(formats) if formats else _SHOWN)
        case "category" | "text":
            return "text"
    raise ValueError(f"kind {kind}: number, boolean, date, category or text was expected")


def _texts(values: NDArray[Any]) -> Cells:
    texts = np.empty(len(values), dtype=object)
    for row, cell in enumerate(values.tolist()):
        texts[row] = None if is_missing(cell) else _text(cell)
    return texts


def _text(cell: Any) -> str:
    """As it is written: 2.0, which a frame makes of 2 where cells are missing, is 2."""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell).strip()


def _number(cell: Any) -> float:
    number = float(cell)
    if not math.isfinite(number) or abs(number) >= LARGEST:
        raise ValueError
    return number


def _boolean(cell: Any) -> float:
    return _BOOLEANS[str(cell).strip().lower()]
