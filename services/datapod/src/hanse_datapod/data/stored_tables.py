"""CSV and Parquet files that are larger than memory, piece by piece (`stored`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from hanse_datapod.data.check import Passed
from hanse_datapod.data.names import Numbering
from hanse_datapod.data.room import Room
from hanse_datapod.data.settings import TableOptions
from hanse_datapod.data.sides import Draw, drawn
from hanse_datapod.data.stored import PIECE_BYTES, FirstFault, Make, Piece, Rest, stored
from hanse_datapod.data.stored_columns import ColumnsStore
from hanse_datapod.data.tables import SiteTable
from hanse_datapod.data.tabular import (
    LINES,
    ROWS,
    RowNaming,
    cells_of_table,
    columns_of,
    csv_errors,
    parquet_errors,
    targets_of,
    wanted_of,
    weights_of,
    whose_of,
)
from hanse_datapod.data.tolerance import Tolerated
from hanse_fabric.errors import HanseError
from hanse_learning.site.examples import Examples
from hanse_schemas.csv_frame import frames_of
from hanse_schemas.dates import showing
from hanse_schemas.schema import LearnableSchema, TabularSchema, unit_of

_CELL_BYTES = 28
"""Of memory that a number needs while a whole table is read: in the frame, as column, in a matrix, and in float32."""
_SIGN_BYTES = 8
"""Of memory that a sign of a CSV file needs: most numbers have four or more."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """A table in pieces.

    Attributes:
        rows: of the table.
        frames: reads it anew, each time from its first row; nothing in a frame shows that it is not the whole.
    """

    path: Path
    naming: RowNaming
    rows: int
    frames: Callable[[], Iterator[pd.DataFrame]]

    @property
    def where(self) -> str:
        """As of `Raw`."""
        return f"data file {self.path.name}"


def pieces_of(
    path: Path, kind: str, schema: LearnableSchema, options: TableOptions, room: Room
) -> Pieces | None:  # fmt: skip
    """The pieces that a table is to be read in; None where there is room for all of it.

    Raises:
        HanseError: as `tabular.read_csv` and `read_parquet`.
    """
    if not path.is_file():
        return None
    return _of_csv(path, schema, options, room) if kind == "csv" else _of_parquet(path, schema, room)


def read_stored(pieces: Pieces, schema: LearnableSchema, room: Room, draw: Draw | None = None) -> Examples:
    """As `checked` of `tabular.read_csv` and `read_parquet`, with the features in a file.

    Args:
        draw: numbers those whose the rows are (`Examples.draws`); None: nobody needs that.

    Raises:
        HanseError: as these; NO_SPACE.
    """
    numbering = Numbering()

    def made() -> Iterator[tuple[int, Make]]:
        naming = pieces.naming
        for frame in pieces.frames():
            yield len(frame), partial(make, frame, naming)
            naming = naming.behind(len(frame))

    def make(frame: pd.DataFrame, naming: RowNaming, passed: Passed) -> Piece:
        found = columns_of(pieces.path, frame, schema, naming, passed)
        return Piece(found.x, found.y, numbering.of(found.whose), found.weights)

    found = stored(
        pieces.where, pieces.naming.unit, pieces.rows, made(), schema, room, lambda y: targets_of(y, schema)
    )  # fmt: skip
    return drawn(found, numbering.names, draw)


def read_stored_table(
    pieces: Pieces, schema: TabularSchema, options: TableOptions, room: Room, draw: Draw | None = None
) -> SiteTable:  # fmt: skip
    """As `tabular.read_table`, with the cells in files.

    Args:
        draw: as of `read_stored`.

    Raises:
        HanseError: as this; NO_SPACE.
    """
    path, naming = pieces.path, pieces.naming
    tolerated = Tolerated(pieces.where, naming.unit, naming.first, pieces.rows, options.tolerance)
    texts = [column.name for column in schema.features if column.kind in ("category", "text")]
    store = ColumnsStore([column.name for column in schema.features], texts, pieces.rows, room.folder)
    shown, numbering = _shown(pieces, schema), Numbering()
    fault, missing = FirstFault(), FirstFault()
    rest = Rest(pieces.rows)
    with tolerated.settling():
        for frame in pieces.frames():
            here, passed = naming.behind(tolerated.taken), Passed()
            try:
                columns, y = cells_of_table(path, frame, schema, tolerated, shown)
            except HanseError as error:  # a column that is not there, in any piece
                missing.note(Passed(), error)
                continue
            store.take(columns)
            try:
                whose = numbering.of(whose_of(path, frame, unit_of(schema), here, passed))
                weights = weights_of(path, frame, schema, here, passed)
            except HanseError as error:
                fault.note(passed, error)
            else:
                rest.take(Piece(y, y, whose, weights))
        missing.require_none()
    fault.require_none()
    checked = rest.checked(pieces.where, naming.unit, schema, lambda y: targets_of(y, schema))
    examples = drawn(Examples(np.zeros((pieces.rows, 0), np.float32), *checked), numbering.names, draw)
    whole = SiteTable(
        pieces.where, naming.unit, naming.first, store.whole(), examples, set_aside=tolerated.count
    )  # fmt: skip
    return whole if not tolerated.dropped.any() else whole.parted(*tolerated.kept())[0]


def _shown(pieces: Pieces, schema: TabularSchema) -> dict[str, list[str]]:
    """Cells that show where the day stands in columns of dates that no schema's format tells of."""
    found: dict[str, dict[int, str]] = {c.name: {} for c in schema.features if c.kind == "date" and not c.formats}
    for frame in pieces.frames() if found else ():
        for name, known in found.items():
            if name in frame.columns and isinstance(given := frame[name], pd.Series) and given.dtype.kind == "O":
                found[name] = showing(given.tolist()) | known
    return {name: list(known.values()) for name, known in found.items()}


def _of_csv(path: Path, schema: LearnableSchema, options: TableOptions, room: Room) -> Pieces | None:
    if path.stat().st_size * _SIGN_BYTES <= room.memory:
        return None
    with csv_errors(path, options):
        cells = PIECE_BYTES // _CELL_BYTES
        found = frames_of(path, schema, options.separator, options.decimal, options.encoding, cells=cells)
    if not found.rows:
        return None

    def frames() -> Iterator[pd.DataFrame]:
        with csv_errors(path, options):
            yield from found()

    return Pieces(path, LINES, found.rows, frames)


def _of_parquet(path: Path, schema: LearnableSchema, room: Room) -> Pieces | None:
    with parquet_errors(path), pq.ParquetFile(path) as file:
        names = file.schema_arrow.names
        wanted = wanted_of(names, schema) or names
        rows = file.metadata.num_rows
        if rows * len(wanted) * _CELL_BYTES <= room.memory or not rows or len(set(names)) != len(names):
            return None
        types = _types(file, wanted)
    at_once = max(1, PIECE_BYTES // (_CELL_BYTES * max(1, len(wanted))))

    def frames() -> Iterator[pd.DataFrame]:
        with parquet_errors(path), pq.ParquetFile(path, buffer_size=1 << 16) as file:
            for groups in _groups(file, at_once):
                for batch in file.iter_batches(at_once, groups, list(wanted), use_threads=False):
                    yield pa.Table.from_batches([batch]).select(list(wanted)).cast(types, safe=False).to_pandas()

    return Pieces(path, ROWS, rows, frames)


def _groups(file: pq.ParquetFile, rows: int) -> Iterator[list[int]]:
    """Row groups that are read together, of some `rows` at least: a reader keeps some of all that it has read."""
    together: list[int] = []
    count = 0
    for group in range(file.num_row_groups):
        together.append(group)
        count += file.metadata.row_group(group).num_rows
        if count >= rows:
            yield together
            together, count = [], 0
    if together:
        yield together


def _types(file: pq.ParquetFile, wanted: list[str]) -> pa.Schema:
    """Whole numbers of which some are missing are numbers with fractions in a frame: in each piece, too."""
    whole = [name for name in wanted if pa.types.is_integer(file.schema_arrow.field(name).type)]
    missing = dict.fromkeys(whole, 0)
    for name in whole:
        for batch in file.iter_batches(columns=[name], use_threads=False):
            missing[name] += batch.column(0).null_count
    fields = [
        field.with_type(pa.float64()) if missing.get(field.name) else field
        for field in (file.schema_arrow.field(name) for name in wanted)
    ]
    return pa.schema(fields, metadata=file.schema_arrow.metadata)
