"""Applies a preparation to cells: what sites train and evaluate on, and what users predict from. numpy alone."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from hanse_learning.preparation.cells import Cells, refused
from hanse_schemas.preparation import Preparation, PreparedCategory, PreparedNumber, PreparedText

_MISSING, _OTHER = -1, -2
Floats = NDArray[np.float64]


def apply(
    preparation: Preparation, table: Mapping[str, Cells], *, where: str = "table", row: str = "row", first: int = 1,
    rows: NDArray[np.int64] | None = None,
) -> Floats:  # fmt: skip
    """The features, float64 (n, k), in the order of `Preparation.outputs`.

    Args:
        table: cells (n,) by column (`cells`).
        where, row, first: what the table and a row are called in messages, and the number of the first row.
        rows: (n,) places of these rows in the table that messages count in; None: they are all of it.

    Raises:
        HanseError: SCHEMA_MISMATCH naming column and row of the first cell that the preparation refuses.
    """
    count = len(next(iter(table.values())))
    features = np.zeros((count, len(preparation.outputs)))
    at = 0
    for column in preparation.columns:
        width = len(column.outputs)
        part = features[:, at : at + width]
        match column:
            case PreparedNumber():
                bad = _number(column, table[column.name], part)
            case PreparedCategory():
                part[:], bad = category_features(column, table[column.name])
            case PreparedText():
                continue
        if bad.any():
            at = int(np.argmax(bad))
            raise refused(
                where, column.name, row, (at if rows is None else int(rows[at])) + first,
                "a value" if isinstance(column, PreparedNumber) else "one of the schema's values",
            )  # fmt: skip
        at += width
    return features


def logarithm(numbers: Floats) -> Floats:
    """sign(x) log(1 + |x|)."""
    return np.asarray(np.copysign(np.log1p(np.abs(numbers)), numbers))


def _number(column: PreparedNumber, cells: Cells, out: Floats) -> NDArray[np.bool_]:
    """Fill `out`; which cells are refused."""
    missing = np.isnan(cells)
    numbers = logarithm(cells) if column.log else cells.copy()
    numbers[missing] = 0.0 if column.fill is None else column.fill
    out[:, 0] = (numbers - column.centre) / column.scale
    if column.indicator:
        out[:, 1] = missing
    return np.asarray(missing if column.fill is None else np.zeros(len(cells), bool))


def category_features(column: PreparedCategory, cells: Cells) -> tuple[Floats, NDArray[np.bool_]]:
    """(features (n, k) of a column's cells, which of these are refused)."""
    out = np.zeros((len(cells), len(column.outputs)))
    places = _places(column, cells)
    missing, other = places == _MISSING, places == _OTHER
    refused_ = missing & (column.missing == "refuse")
    if column.missing == "unknown":
        missing, other = np.zeros(len(cells), bool), missing | other
    refused_ |= other & (column.unknown == "refuse")
    known = np.flatnonzero(places >= 0)
    if column.form == "ordinal":
        out[known, 0] = places[known]
        # Unknown values lie outside the known places, as their column, where there is one, tells.
        out[places < 0, 0] = -1
    else:
        out[known, places[known]] = 1
    own = column.missing == "own"
    if column.has_other:
        out[other, -2 if own else -1] = 1
    if own:
        out[missing, -1] = 1
    return out, np.asarray(refused_)


def _places(column: PreparedCategory, cells: Cells) -> NDArray[np.int64]:
    """The place of each cell's value among those that have one."""
    known: dict[str | None, int] = {value: place for place, value in enumerate(column.values)}
    known[None] = _MISSING
    places = np.empty(len(cells), np.int64)
    for row, cell in enumerate(cells.tolist()):
        place = known.get(cell)
        if place is None:
            place = known[cell] = bucket(cell, column.buckets) if column.form == "hashed" else _OTHER
        places[row] = place
    return places


def bucket(value: str, buckets: int) -> int:
    """The bucket of a value: the first 8 bytes of its BLAKE2b digest, big-endian, modulo their number."""
    return int.from_bytes(hashlib.blake2b(value.encode(), digest_size=8).digest(), "big") % buckets
