"""CSV and Parquet files: named columns, checked value by value against the schema.

Without a declared schema the target is the column `target`, `label` or `y`, or else the last; the rest are features.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hanse_datapod.data.check import Passed, Raw, checked, mismatch
from hanse_datapod.data.names import Numbering
from hanse_datapod.data.settings import TableOptions
from hanse_datapod.data.sides import Draw, drawn
from hanse_datapod.data.tables import SiteTable
from hanse_datapod.data.tolerance import Check, Tolerated
from hanse_fabric.errors import ErrorCode, unfit
from hanse_learning.preparation import cells
from hanse_schemas.csv_frame import read_frame
from hanse_schemas.schema import LARGEST_WEIGHT, ArraySchema, Column, LearnableSchema, TabularSchema, unit_of

_TARGETS = ("target", "label", "y")


@dataclass(frozen=True, slots=True)
class RowNaming:
    """What rows are called in messages, and the number of the first."""

    unit: str
    first: int

    def behind(self, rows: int) -> RowNaming:
        """Of what stands behind so many rows."""
        return replace(self, first=self.first + rows)


LINES, ROWS = RowNaming("line", 2), RowNaming("row", 1)


@dataclass(frozen=True, slots=True)
class Columns:
    """What a table's columns hold: features (n, k), targets (n,), whose each row is as it stands, and weights (n,)."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    whose: pd.Series | None
    weights: NDArray[np.float64] | None


def read_csv(path: Path, schema: LearnableSchema, options: TableOptions) -> Raw:
    """Features (n, k) and target (n,); rows are counted as lines of the file, the header being line 1.

    Raises:
        HanseError: INVALID_INPUT where it is no CSV in UTF-8; SCHEMA_MISMATCH naming file, column and line.
    """
    return _raw(path, _csv(path, schema, options), schema, LINES)


def read_parquet(path: Path, schema: LearnableSchema) -> Raw:
    """Features (n, k) and target (n,); rows are counted from 1.

    Raises:
        HanseError: INVALID_INPUT where it is no Parquet file; SCHEMA_MISMATCH naming file, column and row.
    """
    return _raw(path, _parquet(path, schema), schema, ROWS)


def read_table(
    path: Path, kind: str, schema: TabularSchema, options: TableOptions, draw: Draw | None = None
) -> SiteTable:  # fmt: skip
    """The cells of a CSV or Parquet file as they are, missing ones too, for a preparation.

    Args:
        draw: numbers those whose the rows are (`Examples.draws`); None: nobody needs that.

    Raises:
        HanseError: as `read_csv` and `read_parquet`.
    """
    csv = kind == "csv"
    frame = _csv(path, schema, options) if csv else _parquet(path, schema)
    naming, where = LINES if csv else ROWS, f"data file {path.name}"
    tolerated = Tolerated(where, naming.unit, naming.first, len(frame), options.tolerance)
    with tolerated.settling():
        columns, y = cells_of_table(path, frame, schema, tolerated)
    numbering = Numbering()
    raw = Raw(
        where, np.zeros((len(frame), len(schema.features)), np.float32), targets_of(y, schema), naming.unit,
        numbering.of(whose_of(path, frame, unit_of(schema), naming, Passed())),
        weights_of(path, frame, schema, naming, Passed()), names=numbering.names,
    )  # fmt: skip
    examples = drawn(checked(raw, schema), numbering.names, draw)
    whole = SiteTable(where, naming.unit, naming.first, columns, examples, set_aside=tolerated.count)
    return whole if not tolerated.dropped.any() else whole.parted(*tolerated.kept())[0]


def cells_of_table(
    path: Path, frame: pd.DataFrame, schema: TabularSchema, tolerated: Tolerated,
    shown: Mapping[str, list[str]] | None = None,
) -> tuple[dict[str, cells.Cells], NDArray[np.float64]]:  # fmt: skip
    """(cells by feature, targets (n,)) of a table, or of its next piece, without what the site tolerates.

    Args:
        shown: cells of columns of dates, from elsewhere in the table, that show where the day stands.

    Raises:
        HanseError: SCHEMA_MISMATCH for more bad cells than are tolerated, of the first column that has them, or for a
            column that is not there.
    """
    present = [str(name) for name in frame.columns]
    found: dict[str, cells.Cells] = {}
    try:
        for column in schema.features:
            given = _given(path, frame, column.name, present)
            read, checks = _cells(given, column, (shown or {}).get(column.name, ()))
            tolerated.take(column.name, given, read, checks)
            found[column.name] = read
        target, given = _target(schema), _given(path, frame, schema.target, present)
        y, checks = _targets(given, schema, target)
        tolerated.take(target.name, given, y, checks, target=True)
    finally:
        tolerated.end_of_piece(len(frame))
    return found, y


def _cells(given: Any, column: Column, shown: Sequence[str]) -> tuple[cells.Cells, list[Check]]:
    """(a column's cells, which are bad)."""
    found, bad = cells.read(column.kind, given, column.formats, shown)
    checks = [(bad, cells.expected(column.kind, column.formats))]
    if column.kind == "number":
        there = ~np.isnan(found)
        if column.dtype == "integer":
            checks.append((there & (found != np.round(found)), "a whole number"))
        if column.minimum is not None:
            checks.append((there & (found < column.minimum), f"at least {column.minimum:g}"))
        if column.maximum is not None:
            checks.append((there & (found > column.maximum), f"at most {column.maximum:g}"))
    return found, checks


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
    with csv_errors(path, options):
        return read_frame(path, schema, options.separator, options.decimal, options.encoding)


@contextmanager
def csv_errors(path: Path, options: TableOptions) -> Iterator[None]:
    """Within it, a file that is no CSV in the encoding that it is said to have is INVALID_INPUT."""
    try:
        yield
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
    with parquet_errors(path):
        wanted = wanted_of(pq.read_schema(path).names, schema)
        frame: pd.DataFrame = pq.read_table(path, columns=wanted).to_pandas()
    return frame


@contextmanager
def parquet_errors(path: Path) -> Iterator[None]:
    """Within it, a file that is no Parquet file is INVALID_INPUT."""
    try:
        yield
    except pa.ArrowException as error:
        raise unfit(
            f"data file {path.name}: it is not a Parquet file", str(error), code=ErrorCode.INVALID_INPUT
        ) from None


def wanted_of(names: Collection[str], schema: LearnableSchema) -> list[str] | None:
    """The columns that are read of those that there are; None: all."""
    if not isinstance(schema, TabularSchema):
        return None
    return [n for n in (*(c.name for c in schema.features), schema.target, *schema.beside) if n in names]


def _raw(path: Path, frame: pd.DataFrame, schema: LearnableSchema, naming: RowNaming) -> Raw:
    found, numbering = columns_of(path, frame, schema, naming, Passed()), Numbering()
    y, whose = targets_of(found.y, schema), numbering.of(found.whose)
    return Raw(f"data file {path.name}", found.x, y, naming.unit, whose, found.weights, names=numbering.names)


def targets_of(y: NDArray[np.float64], schema: LearnableSchema) -> NDArray[Any]:
    """The targets (n,) of a file: whole numbers where the schema says it, or where it says nothing and all are."""
    if isinstance(schema, TabularSchema):
        return y.astype(np.int64) if _target(schema).dtype == "integer" else y
    whole = len(y) and bool(np.all(y == np.round(y))) and schema.kind == "open"
    return y.astype(np.int64) if whole else y


def columns_of(
    path: Path, frame: pd.DataFrame, schema: LearnableSchema, naming: RowNaming, passed: Passed
) -> Columns:  # fmt: skip
    """The columns of a table, or of a piece of one.

    Raises:
        HanseError: SCHEMA_MISMATCH naming file, column and row.
    """
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
    x = [_column(path, frame, column, named[column.name], naming, passed) for column in features]
    passed.one()
    given = _given(path, frame, target.name, present)
    y, checks = _targets(given, schema, target)
    _refuse(path, given, target, named[target.name], checks, naming, passed)
    return Columns(
        np.stack(x, axis=1) if x else np.empty((len(frame), 0)), y,
        whose_of(path, frame, unit_of(schema), naming, passed), weights_of(path, frame, schema, naming, passed),
    )  # fmt: skip


def whose_of(
    path: Path, frame: pd.DataFrame, column: str | None, naming: RowNaming, passed: Passed
) -> pd.Series | None:  # fmt: skip
    """Whose each row is, as it stands; None: the file does not say."""
    if column is None or column not in frame.columns:
        return None
    passed.one()
    given: Any = frame[column]
    if isinstance(given, pd.DataFrame):
        raise mismatch(f"data file {path.name}: column {column} is there {given.shape[1]} times")
    empty = given.isna().to_numpy()
    passed.one()
    if empty.any():
        row = int(np.argmax(empty))
        raise mismatch(
            f"data file {path.name}: column {column}, {naming.unit} {row + naming.first}: a value was expected",
            "an empty cell",
        )
    found: pd.Series = given
    return found


def weights_of(
    path: Path, frame: pd.DataFrame, schema: LearnableSchema, naming: RowNaming, passed: Passed
) -> NDArray[np.float64] | None:
    """What each row counts in training. None is guessed, and a site's tolerance is for features."""
    if not isinstance(schema, TabularSchema) or schema.weight is None:
        return None
    column = Column(name=schema.weight, minimum=0, maximum=LARGEST_WEIGHT)
    passed.one()
    given = _given(path, frame, column.name, [str(name) for name in frame.columns])
    values, checks = _numbers(given, column)
    _refuse(path, given, column, f"column {column.name}", checks, naming, passed)
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


def _column(
    path: Path, frame: pd.DataFrame, column: Column, named: str, naming: RowNaming, passed: Passed
) -> NDArray[np.float64]:
    passed.one()
    given: Any = frame[column.name]
    if isinstance(given, pd.DataFrame):
        raise mismatch(f"data file {path.name}: {named} is there {given.shape[1]} times", column.name)
    values, checks = _numbers(given, column)
    _refuse(path, given, column, named, checks, naming, passed)
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


def _refuse(
    path: Path, given: Any, column: Column, named: str, checks: list[Check], naming: RowNaming, passed: Passed
) -> None:
    for bad, expected in checks:
        passed.one()
        if bad.any():
            row = int(np.argmax(bad))
            value = given.iloc[row]
            shown = "an empty cell" if pd.isna(value) else repr(value.item() if hasattr(value, "item") else value)
            raise mismatch(
                f"data file {path.name}: {named}, {naming.unit} {row + naming.first}: {expected} was expected",
                f"{shown} in column {column.name}",
            )
