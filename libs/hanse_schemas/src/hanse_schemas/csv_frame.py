"""CSV files as frames of pandas, which whoever calls this has installed; see `csv_form`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hanse_schemas.csv_form import Decimal, Encoding, Separator, codec_of, decimal_of, separator_of, with_point
from hanse_schemas.schema import LearnableSchema, TabularSchema, unit_of

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
    frame: pd.DataFrame = _read(path, between, encoding, dict.fromkeys(told.texts, str))
    numbers = told.numbers_of(frame)
    sign: str = decimal_of(told.odd_cells(frame), path.name) if decimal == "auto" else decimal
    if sign == ",":
        # Anew, for a point between thousands was taken for a decimal point.
        frame = _read(path, between, encoding, str)
        for name in numbers:
            pointed = frame[name].map(with_point, na_action="ignore")
            frame[name] = _as_most(frame[name], pointed) if told.numbers is None else pointed
    return frame


@dataclass(frozen=True, slots=True)
class FramesOf:
    """A file as frames of so many rows, with the types that the whole file as one frame would have.

    Attributes:
        rows: of the file.
        at_once: rows of a frame.
        types: of columns, where a part of them looks like another type than all of them.
        pointed: columns of numbers with a decimal comma; of each, whether all its cells are numbers.
    """

    path: Path
    separator: str
    encoding: Encoding
    rows: int
    at_once: int
    types: Any
    pointed: Mapping[str, bool] = field(default_factory=dict)

    def __call__(self) -> Iterator[pd.DataFrame]:
        """The frames, read anew."""
        import pandas as pd

        for frame in _parts(self.path, self.separator, self.encoding, self.types, self.at_once):
            for name, numbers in self.pointed.items():
                cells = frame[name].map(with_point, na_action="ignore")
                frame[name] = pd.to_numeric(cells) if numbers else cells
            yield frame


def frames_of(
    path: Path, schema: LearnableSchema, separator: Separator = "auto", decimal: Decimal = "auto",
    encoding: Encoding = "utf-8", *, cells: int,
) -> FramesOf:  # fmt: skip
    """Look a file through for how it is to be read as `read_frame` reads it, with so many cells in a frame.

    Raises:
        HanseError, UnicodeError, ValueError: as `read_frame`.
    """
    told = _Told.of(schema)
    between = separator_of(path, told.names, separator, encoding)
    texts = dict.fromkeys(told.texts, str)
    at_once = max(1, cells // max(1, len(_read(path, between, encoding, texts, nrows=0).columns)))
    look = _Look(told)
    looking = look.odd_cells(_parts(path, between, encoding, texts, at_once))
    sign: str = decimal_of(looking, path.name) if decimal == "auto" else decimal
    for _ in looking:  # the rest of the file, where it was clear before its end
        pass
    if sign != ",":
        return FramesOf(path, between, encoding, look.rows, at_once, look.types())
    pointed = dict.fromkeys(look.numbers, False)
    if told.numbers is None:
        pointed = _pointed(_parts(path, between, encoding, str, at_once), look.numbers)
    return FramesOf(path, between, encoding, look.rows, at_once, str, pointed)


def _as_most(texts: pd.Series, pointed: pd.Series) -> pd.Series:
    """A column that no schema declares: of numbers where most of its cells are, else the texts that it has."""
    import pandas as pd

    count = _Count()
    count.take(pointed)
    if not count.most:
        return texts
    return pd.to_numeric(pointed) if count.all else pointed


def _pointed(parts: Iterable[pd.DataFrame], names: Iterable[str]) -> dict[str, bool]:
    """Those columns most cells of which are numbers, as `_as_most` takes them."""
    counts = {name: _Count() for name in names}
    for frame in parts:
        for name, count in counts.items():
            count.take(frame[name].map(with_point, na_action="ignore"))
    return {name: count.all for name, count in counts.items() if count.most}


@dataclass(slots=True)
class _Count:
    """How many cells of a column are there, and how many of these are numbers."""

    there: int = 0
    numbers: int = 0

    def take(self, pointed: pd.Series) -> None:
        import pandas as pd

        self.numbers += int(pd.to_numeric(pointed, errors="coerce").notna().sum())
        self.there += int(pointed.notna().sum())

    @property
    def most(self) -> bool:
        return 2 * self.numbers > self.there

    @property
    def all(self) -> bool:
        return self.numbers == self.there


class _Look:
    """What is seen of a file, part by part.

    Attributes:
        rows: so many.
        numbers: names of columns that are read as numbers.
    """

    def __init__(self, told: _Told) -> None:
        self._told = told
        self.rows = 0
        self.numbers: list[str] = []
        self._kinds: dict[str, set[str]] = {}

    def odd_cells(self, parts: Iterable[pd.DataFrame]) -> Iterator[str]:
        """As of the whole file: in columns of which a part is odd, plain numbers do not matter."""
        for frame in parts:
            self.rows += len(frame)
            self.numbers = self._told.numbers_of(frame)
            for name in frame.columns:
                self._kinds.setdefault(name, set()).add(_kind(frame[name]))
            yield from self._told.odd_cells(frame)

    def types(self) -> dict[str, Any]:
        """By column: text, where some part of it is no number; else numbers with fractions, where some are."""
        found: dict[str, Any] = dict.fromkeys(self._told.texts, str)
        for name, kinds in self._kinds.items():
            there = kinds - {"empty"}
            if "O" in there or ("b" in there and len(there) > 1):
                found[name] = str
            elif len(kinds) > 1 and "b" not in there and kinds & {"f", "empty"}:
                found[name] = "float64"
        return found


def _kind(column: pd.Series) -> str:
    return "empty" if column.isna().all() else column.dtype.kind


def _parts(path: Path, separator: str, encoding: Encoding, types: Any, at_once: int) -> Iterator[pd.DataFrame]:
    with _read(path, separator, encoding, types, chunksize=at_once) as reader:
        yield from reader


def _read(path: Path, separator: str, encoding: Encoding, types: Any, **further: Any) -> Any:
    import pandas as pd

    return pd.read_csv(
        path, sep=separator, encoding=codec_of(encoding), skip_blank_lines=False, low_memory=False, dtype=types,
        **further,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Told:
    """What the schema says of a file's columns.

    Attributes:
        names: of all.
        texts, numbers: of those that are read as they stand, and as numbers; None: all others that there are. Whose
            a row is stands as it is: what one name is must not depend on the other rows'.
    """

    names: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    numbers: frozenset[str] | None = None

    def numbers_of(self, frame: pd.DataFrame) -> list[str]:
        """Names of the columns that are read as numbers."""
        if self.numbers is None:
            return [name for name in frame.columns if name not in self.texts]
        return [name for name in frame.columns if name in self.numbers]

    def odd_cells(self, frame: pd.DataFrame) -> Iterator[str]:
        """The cells of those of them that hold other things than plain numbers with a point."""
        odd = (frame[name] for name in self.numbers_of(frame) if frame[name].dtype.kind not in "fiub")
        return (cell for column in odd for cell in column.dropna().astype(str))

    @classmethod
    def of(cls, schema: LearnableSchema) -> _Told:
        unit = unit_of(schema)
        whose = () if unit is None else (unit,)
        if not isinstance(schema, TabularSchema):
            return cls(texts=whose)
        texts = tuple(column.name for column in schema.features if column.kind != "number")
        texts += (schema.target,) if schema.labels else ()
        names = (*(column.name for column in schema.features), schema.target)
        numbers = frozenset(names) - set(texts) | (set() if schema.weight is None else {schema.weight})
        return cls((*names, *schema.beside), (*texts, *whose), numbers)
