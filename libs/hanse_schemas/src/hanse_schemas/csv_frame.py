"""CSV files as frames of pandas, which whoever calls this has installed; see `csv_form`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hanse_schemas.csv_form import Decimal, Encoding, Separator, codec_of, decimal_of, separator_of, with_point
from hanse_schemas.schema import LearnableSchema, TabularSchema

if TYPE_CHECKING:
    import pandas as pd


def read_frame(
    path: Path, schema: LearnableSchema, separator: Separator = "auto", decimal: Decimal = "auto",
    encoding: Encoding = "utf-8",
) -> pd.DataFrame:  # fmt: skip
    """A file. Of a declared schema, what is no number is read as the text that it is; numbers have a decimal point.

    Raises:
        HanseError: INVALID_INPUT where it may be read in more than one way.
        UnicodeError: where it is of another encoding.
        ValueError: where it is no CSV (also as pandas' own errors).
    """
    told = _Told.of(schema)
    between = separator_of(path, told.names, separator, encoding)
    frame = _read(path, between, encoding, dict.fromkeys(told.texts, str))
    numbers = [name for name in frame.columns if told.numbers is None or name in told.numbers]
    sign: str = decimal
    if decimal == "auto":
        odd = [name for name in numbers if frame[name].dtype.kind not in "fiub"]
        sign = decimal_of((cell for name in odd for cell in frame[name].dropna().astype(str)), path.name)
    if sign == ",":
        # Anew, for a point between thousands was taken for a decimal point.
        frame = _read(path, between, encoding, str)
        for name in numbers:
            pointed = frame[name].map(with_point, na_action="ignore")
            frame[name] = _as_most(frame[name], pointed) if told.numbers is None else pointed
    return frame


def _as_most(texts: pd.Series, pointed: pd.Series) -> pd.Series:
    """A column that no schema declares: of numbers where most of its cells are, else the texts that it has."""
    import pandas as pd

    read, there = pd.to_numeric(pointed, errors="coerce").notna(), pointed.notna()
    if 2 * read.sum() <= there.sum():
        return texts
    return pd.to_numeric(pointed) if read.eq(there).all() else pointed


def _read(path: Path, separator: str, encoding: Encoding, types: Any) -> pd.DataFrame:
    import pandas as pd

    return pd.read_csv(
        path, sep=separator, encoding=codec_of(encoding), skip_blank_lines=False, low_memory=False, dtype=types
    )


@dataclass(frozen=True, slots=True)
class _Told:
    """What the schema says of a file's columns.

    Attributes:
        names: of all.
        texts, numbers: of those that are read as they stand, and as numbers; None: all that there are.
    """

    names: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    numbers: frozenset[str] | None = None

    @classmethod
    def of(cls, schema: LearnableSchema) -> _Told:
        if not isinstance(schema, TabularSchema):
            return cls()
        texts = tuple(column.name for column in schema.features if column.kind != "number")
        texts += (schema.target,) if schema.labels else ()
        names = (*(column.name for column in schema.features), schema.target)
        numbers = frozenset(names) - set(texts) | (set() if schema.weight is None else {schema.weight})
        return cls((*names, *schema.beside), texts, numbers)
