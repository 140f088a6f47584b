"""CSV and Parquet files: named columns, checked value by value against the schema.

Without a declared schema the target is the column `target`, `label` or `y`, or else the last; the rest are features.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hanse_datapod.data.check import Raw, checked, mismatch
from hanse_datapod.data.settings import TableOptions
from hanse_datapod.data.tables import Table
from hanse_datapod.data.tolerance import Check, Tolerated
from hanse_fabric.errors import ErrorCode, unfit
from hanse_learning.preparation import cells
from hanse_schemas.csv_frame import read_frame
from hanse_schemas.schema import LARGEST_WEIGHT, ArraySchema, Column, LearnableSchema, TabularSchema, unit_of

_TARGETS = ("target", "label", "y")


def read_csv(path: Path, schema: LearnableSchema, options: TableOptions) -> Raw:
    """Features (n, k) and target (n,); rows are counted as lines of the file, the header being line 1.

    Raises:
        HanseError: INVALID_INPUT where it is no CSV in UTF-8; SCHEMA_MISMATCH naming file, column and line.
    """
    return _raw(path, _csv(path, schema, options), schema, "line", 2)


def read_parquet(path: Path, schema: LearnableSchema) -> Raw:
    """Features (n, k) and target (n,); rows are counted from 1.

    Raises:
        HanseError: INVALID_INPUT where it is no Parquet file; SCHEMA_MISMATCH naming file, column and row.
    """
    return _raw(path, _parquet(path, schema), schema, "row", 1)


def read_table(path: Path, kind: str, schema: TabularSchema, options: TableOptions) -> Table:
    """The cells of a CSV or Parquet file as they are, missing ones too, for a preparation.

    Raises:
        HanseError: as `read_csv` and `read_parquet`.
    """
    csv = kind == "csv"
    frame = _csv(path, schema, options) if csv else _parquet(path, schema)
    row, first = ("line", 2) if csv else ("row", 1)
    present = [str(name) for name in frame.columns]
    where = f"data file {path.name}"
    tolerated = Tolerated(where, row, first, len(frame), options.tolerance)
    columns: dict[str, cells.Cells] = {}
    for column in schema.features:
        given = _given(path, frame, column.name, present)
        found, bad = cells.read(column.kind, given, column.formats)
        checks = [(bad, cells.expected(column.kind, column.formats))]
        if column.kind == "number":
            there = ~np.isnan(found)
            if column.dtype == "integer":
                checks.append((there & (found != np.round(found)), "a whole number"))
            if column.minimum is not None:
                checks.append((there & (found < column.minimum), f"at least {column.minimum:g}"))
            if column.maximum is not None:
                checks.append((there & (found > column.maximum), f"at most {column.maximum:g}"))
        tolerated.clear(column.name, given, found, checks)
        columns[column.name] = found
    target, given = _target(schema), _given(path, frame, schema.target, present)
    y, checks = _targets(given, schema, target)
    tolerated.clear(target.name, given, y, checks, target=True)
    raw = Raw(
        where, np.zeros((len(frame), len(schema.features)), np.float32),
        y.astype(np.int64) if target.dtype == "integer" else y, row, _whose(path, frame, unit_of(schema), row, first),
        _weights(path, frame, schema, row, first),
    )  # fmt: skip
    whole = Table(where, row, first, columns, checked(raw, schema), set_aside=tolerated.count)
    if not tolerated.dropped.any():
        return whole
    if tolerated.dropped.all():
        raise mismatch(f"{where}: there are no examples without a bad cell")
    return whole.take(np.flatnonzero(~tolerated.dropped))


def _given(path: Path, frame: pd.DataFrame, name: str, present: list[str]) -> Any:
    if name not in present:
        raise mismatch(f"data file {path.name}: column {name} is missing", f"it has {', '.join(present[:20])}")
    given: Any = frame[name]
    if isinstance(given, pd.DataFrame):
        raise mismatch(f"data file {path.name}: column {name} is there {given.shape[1]} times", name)
    return given


def _targets(given: Any, schema: LearnableSchema, target: Column) -> tuple[NDArray[np.float64], list[Check]]:
    """(numbers (n,), of classes that have names their places; which are bad)."""
    if not (isinstance(schema, TabularSchema) and schema.labels):
        return _numbers(given, target)
    places = {
        text: place for place, label in enumerate(schema.labels) for text in (label.name, *label.cells)
    }  # fmt: skip
    texts, _ = cells.read("category", given)
    found = np.array([places.get(text, -1) for text in texts.tolist()], np.float64)
    return found, [(found < 0, "one of the schema's labels")]


def _target(schema: TabularSchema) -> Column:
    if schema.task != "classification":
        return Column(name=schema.target)
    last = schema.classes - 1 if schema.classes is not None else None
    return Column(name=schema.target, dtype="integer", minimum=0, maximum=last)


def _csv(path: Path, schema: LearnableSchema, options: TableOptions) -> pd.DataFrame:
    """The file. Of a declared schema, what is no number is read as the text that it is."""
    try:
        return read_frame(path, schema, options.separator, options.decimal, options.encoding)
    except UnicodeError as error:
        raise unfit(
            f"data file {path.name}: its text is not {options.encoding}", str(error), code=ErrorCode.INVALID_INPUT,
            hint="say encoding in the site's table options, HANSE_TABLE (--table): {encoding: cp1252} is what Windows "
            "programs of Western Europe write; or have the program write UTF-8",
        ) from None  # fmt: skip
    except ValueError as error:
        raise unfit(
            f"data file {path.name}: it is not CSV", str(error), code=ErrorCode.INVALID_INPUT,
            hint="a header line; commas, semicolons or tabs between values",
        ) from None  # fmt: skip


def _parquet(path: Path, schema: LearnableSchema) -> pd.DataFrame:
    try:
        names = set(pq.read_schema(path).names)
        wanted = None
        if isinstance(schema, TabularSchema):
            wanted = [n for n in (*(c.name for c in schema.features), schema.target, *schema.beside) if n in names]
        frame: pd.DataFrame = pq.read_table(path, columns=wanted).to_pandas()
    except pa.ArrowException as error:
        raise unfit(
            f"data file {path.name}: it is not a Parquet file", str(error), code=ErrorCode.INVALID_INPUT
        ) from None
    return frame


def _raw(path: Path, frame: pd.DataFrame, schema: LearnableSchema, unit: str, first: int) -> Raw:
    if isinstance(schema, ArraySchema) and len(schema.shape) != 1:
        raise mismatch(f"data file {path.name}: a table, the schema says arrays of shape {list(schema.shape)}")
    if isinstance(schema, TabularSchema):
        features, target = schema.features, _target(schema)
    else:
        features, target = _guess(frame)
    present = [str(name) for name in frame.columns]
    for column in (*features, target):
        if column.name not in present:
            raise mismatch(
                f"data file {path.name}: column {column.name} is missing", f"it has {', '.join(present[:20])}"
            )
    named = _told_names(present, schema)
    x = [_column(path, frame, column, named[column.name], unit, first) for column in features]
    given = _given(path, frame, target.name, present)
    y, checks = _targets(given, schema, target)
    _refuse(path, given, target, named[target.name], checks, unit, first)
    whole = target.dtype == "integer" or (len(y) and bool(np.all(y == np.round(y))) and schema.kind == "open")
    return Raw(
        f"data file {path.name}",
        np.stack(x, axis=1) if x else np.empty((len(frame), 0)),
        y.astype(np.int64) if whole else y,
        unit,
        _whose(path, frame, unit_of(schema), unit, first),
        _weights(path, frame, schema, unit, first),
    )


def _whose(path: Path, frame: pd.DataFrame, column: str | None, unit: str, first: int) -> NDArray[Any] | None:
    """Whose each row is: numbers as they stand, anything else as text."""
    if column is None or column not in frame.columns:
        return None
    given: Any = frame[column]
    if isinstance(given, pd.DataFrame):
        raise mismatch(f"data file {path.name}: column {column} is there {given.shape[1]} times")
    empty = given.isna().to_numpy()
    if empty.any():
        row = int(np.argmax(empty))
        raise mismatch(
            f"data file {path.name}: column {column}, {unit} {row + first}: a value was expected", "an empty cell"
        )
    return np.asarray(pd.factorize(given)[0])


def _weights(
    path: Path, frame: pd.DataFrame, schema: LearnableSchema, unit: str, first: int
) -> NDArray[np.float64] | None:
    """What each row counts in training. None is guessed, and a site's tolerance is for features."""
    if not isinstance(schema, TabularSchema) or schema.weight is None:
        return None
    column = Column(name=schema.weight, minimum=0, maximum=LARGEST_WEIGHT)
    given = _given(path, frame, column.name, [str(name) for name in frame.columns])
    values, checks = _numbers(given, column)
    _refuse(path, given, column, f"column {column.name}", checks, unit, first)
    return values


def _guess(frame: pd.DataFrame) -> tuple[tuple[Column, ...], Column]:
    names = [str(name) for name in frame.columns]
    target = next((name for name in _TARGETS if name in names), names[-1])
    return tuple(Column(name=name) for name in names if name != target), Column(name=target)


def _told_names(present: list[str], schema: LearnableSchema) -> dict[str, str]:
    """What messages call a column: by its name where the project declared it, else by its place in the file."""
    if isinstance(schema, TabularSchema):
        return {name: f"column {name}" for name in present}
    return {name: f"column {at}" for at, name in enumerate(present, start=1)}


def _column(path: Path, frame: pd.DataFrame, column: Column, named: str, unit: str, first: int) -> NDArray[np.float64]:
    given: Any = frame[column.name]
    if isinstance(given, pd.DataFrame):
        raise mismatch(f"data file {path.name}: {named} is there {given.shape[1]} times", column.name)
    values, checks = _numbers(given, column)
    _refuse(path, given, column, named, checks, unit, first)
    return values


def _numbers(given: Any, column: Column) -> tuple[NDArray[np.float64], list[Check]]:
    """(numbers (n,), which are bad)."""
    read = pd.to_numeric(given, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    values: NDArray[np.float64] = np.array(read)
    checks: list[Check] = [(~np.isfinite(values), "a finite number")]
    if column.dtype == "integer":
        checks.append((values != np.round(values), "a whole number"))
    if column.minimum is not None:
        checks.append((values < column.minimum, f"at least {column.minimum:g}"))
    if column.maximum is not None:
        checks.append((values > column.maximum, f"at most {column.maximum:g}"))
    return values, checks


def _refuse(path: Path, given: Any, column: Column, named: str, checks: list[Check], unit: str, first: int) -> None:
    for bad, expected in checks:
        if bad.any():
            row = int(np.argmax(bad))
            value = given.iloc[row]
            shown = "an empty cell" if pd.isna(value) else repr(value.item() if hasattr(value, "item") else value)
            raise mismatch(
                f"data file {path.name}: {named}, {unit} {row + first}: {expected} was expected",
                f"{shown} in column {column.name}",
            )
