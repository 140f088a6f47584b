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

from hanse_datapod.data.check import Raw, mismatch
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_schemas.schema import ArraySchema, Column, LearnableSchema, TabularSchema

_TARGETS = ("target", "label", "y")


def read_csv(path: Path, schema: LearnableSchema) -> Raw:
    """Features (n, k) and target (n,); rows are counted as lines of the file, the header being line 1.

    Raises:
        HanseError: INVALID_INPUT where it is no CSV in UTF-8; SCHEMA_MISMATCH naming file, column, line and value.
    """
    try:
        frame = pd.read_csv(path, skip_blank_lines=False, low_memory=False)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"data file {path}: it is not CSV ({error})",
            hint="a header line, commas between values, UTF-8",
        ) from None  # fmt: skip
    return _raw(path, frame, schema, "line", 2)


def read_parquet(path: Path, schema: LearnableSchema) -> Raw:
    """Features (n, k) and target (n,); rows are counted from 1.

    Raises:
        HanseError: INVALID_INPUT where it is no Parquet file; SCHEMA_MISMATCH naming file, column, row and value.
    """
    try:
        names = set(pq.read_schema(path).names)
        wanted = None
        if isinstance(schema, TabularSchema):
            wanted = [n for n in (*(c.name for c in schema.features), schema.target) if n in names]
        frame = pq.read_table(path, columns=wanted).to_pandas()
    except pa.ArrowException as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"data file {path}: it is not a Parquet file ({error})") from None
    return _raw(path, frame, schema, "row", 1)


def _raw(path: Path, frame: pd.DataFrame, schema: LearnableSchema, unit: str, first: int) -> Raw:
    if isinstance(schema, ArraySchema) and len(schema.shape) != 1:
        raise mismatch(f"data file {path}: a table, the schema says arrays of shape {list(schema.shape)}")
    if isinstance(schema, TabularSchema):
        features, target = schema.features, Column(name=schema.target)
        if schema.task == "classification":
            last = schema.classes - 1 if schema.classes is not None else None
            target = Column(name=schema.target, dtype="integer", minimum=0, maximum=last)
    else:
        features, target = _guess(frame)
    present = [str(name) for name in frame.columns]
    for column in (*features, target):
        if column.name not in present:
            raise mismatch(f"data file {path}: column {column.name} is missing, it has {', '.join(present[:20])}")
    x = [_column(path, frame, column, unit, first) for column in features]
    y = _column(path, frame, target, unit, first)
    whole = target.dtype == "integer" or (len(y) and bool(np.all(y == np.round(y))) and schema.kind == "open")
    return Raw(
        f"data file {path}",
        np.stack(x, axis=1) if x else np.empty((len(frame), 0)),
        y.astype(np.int64) if whole else y,
        unit,
    )


def _guess(frame: pd.DataFrame) -> tuple[tuple[Column, ...], Column]:
    names = [str(name) for name in frame.columns]
    target = next((name for name in _TARGETS if name in names), names[-1])
    return tuple(Column(name=name) for name in names if name != target), Column(name=target)


def _column(path: Path, frame: pd.DataFrame, column: Column, unit: str, first: int) -> NDArray[np.float64]:
    given: Any = frame[column.name]
    if isinstance(given, pd.DataFrame):
        raise mismatch(f"data file {path}: column {column.name} is there {given.shape[1]} times")
    values: NDArray[np.float64] = pd.to_numeric(given, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    checks = [(~np.isfinite(values), "a finite number")]
    if column.dtype == "integer":
        checks.append((values != np.round(values), "a whole number"))
    if column.minimum is not None:
        checks.append((values < column.minimum, f"at least {column.minimum:g}"))
    if column.maximum is not None:
        checks.append((values > column.maximum, f"at most {column.maximum:g}"))
    for bad, expected in checks:
        if bad.any():
            row = int(np.argmax(bad))
            value = given.iloc[row]
            shown = "an empty cell" if pd.isna(value) else repr(value.item() if hasattr(value, "item") else value)
            raise mismatch(
                f"data file {path}: column {column.name}, {unit} {row + first}: {shown[:80]} is not {expected}"
            )
    return values
