"""Encodes an update into a file, entry by entry, and tells what was left out of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.tensors.layout import Entry, Layout
from hanse_learning.codecs.bytes_in import BytesIn
from hanse_learning.codecs.chain import Chain, Positions
from hanse_learning.codecs.factors import Columns, RowsOf, Wide, matrix_shape, widths, write_columns
from hanse_learning.codecs.frames import FRAME_ELEMENTS, ROW, Frame, Portion, draw_of, frames_of, head_of
from hanse_learning.codecs.stages import Mask, Values

Arrays = Mapping[str, np.ndarray[Any, Any]]


def encode(
    file: BinaryIO, layout: Layout, arrays: Arrays, chain: Chain, *, seed: int, residual: Arrays | None = None,
    with_layout: bool = False,
) -> dict[str, Values]:  # fmt: skip
    """Write an update, or a model `with_layout`.

    Args:
        file: empty, and open for writing anywhere in it.
        arrays: one for each entry, with its shape and dtype.
        seed: of what is random in the codecs; the same gives the same bytes.
        residual: what former updates left out, by parameter; it is added. None: nothing is added, nothing kept.

    Returns:
        What this one leaves out, by parameter, in the entries' dtypes; nothing where `residual` is None.

    Raises:
        HanseError: TRAINING_FAILED for values that are not finite; INVALID_INPUT for an entry that the codecs refuse.
    """
    return encode_from(
        file, layout, arrays, chain, seed=seed, residual=residual, with_layout=with_layout
    ).left_out  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kept:
    """What a site keeps of an update for its next one, by parameter.

    Attributes:
        left_out: what the codecs left out.
        columns: of the products that the codecs made.
    """

    left_out: dict[str, Values]
    columns: dict[str, Wide]


def encode_from(
    file: BinaryIO, layout: Layout, arrays: Arrays, chain: Chain, *, seed: int, residual: Arrays | None = None,
    columns: Arrays | None = None, with_layout: bool = False,
) -> Kept:  # fmt: skip
    """The same, by what the former update's products had for columns."""
    return _Writer(layout, arrays, chain, seed, residual, with_layout, columns or {}).write(file)


@dataclass(slots=True)
class _Writer:
    layout: Layout
    arrays: Arrays
    chain: Chain
    seed: int
    residual: Arrays | None
    with_layout: bool
    former: Arrays
    left: dict[str, Values] = field(default_factory=dict)
    rows: dict[str, Wide] = field(default_factory=dict)
    columns: dict[str, Wide] = field(default_factory=dict)
    arrived: Columns = field(default_factory=dict)
    _entry: str = ""
    _values: Values = field(default_factory=lambda: np.zeros(0, np.float32))
    _kept: Mask | None = None

    def write(self, file: BinaryIO) -> Kept:
        frames = frames_of(self.layout)
        columns = self._factored()
        head = head_of(
            self.layout, self.chain.sections, self.seed, with_layout=self.with_layout, columns=len(columns)
        ).encode()
        table = np.zeros(len(frames), ROW)
        file.write(head)
        file.write(table.tobytes())
        if self.with_layout:
            file.write(self.layout.header)
        file.write(columns)
        for index, frame in enumerate(frames):
            packed = self.chain.packed(self._frame(frame))
            table["length"][index] = len(packed)
            table["digest"][index] = np.void(hashlib.sha256(packed).digest())
            file.write(packed)
        file.seek(len(head))
        file.write(table.tobytes())
        return Kept(self.left, self.columns)

    def _factored(self) -> bytes:
        """Make the factors of all products; gives the columns as they travel."""
        wanted = widths(self.layout, self.chain)
        first: dict[str, int] = {}
        for frame in frames_of(self.layout):
            for portion in frame.portions:
                first.setdefault(portion.entry.name, portion.index)
        for entry in self.layout:
            if entry.name in wanted and self.chain.factorizer is not None:
                former, matrix = self.former.get(entry.name), self._whole(entry).reshape(matrix_shape(entry))
                draw = draw_of(self.seed, first[entry.name], 1)
                self.rows[entry.name], self.columns[entry.name] = self.chain.factorizer.factors(matrix, former, draw)
        packed, self.arrived = write_columns(self.layout, self.columns, self.chain, self.seed)
        return packed

    def _frame(self, frame: Frame) -> bytes:
        write = self._parameter if frame.parameter else self._buffer
        return b"".join(write(portion) for portion in frame.portions)

    def _buffer(self, portion: Portion) -> bytes:
        flat = self.arrays[portion.entry.name].reshape(-1)
        return bytes([Positions.RAW]) + flat[portion.first : portion.last].tobytes()

    def _parameter(self, portion: Portion) -> bytes:
        if portion.entry.name != self._entry:
            self._begin(portion.entry)
        values = self._values[portion.first : portion.last]
        sparsifier, kept = self.chain.sparsifier, None
        seeded = None
        if sparsifier is not None and sparsifier.seeded:
            kept = seeded = self.chain.choose(values, portion.entry.name, draw_of(self.seed, portion.index, 1))
        elif self._kept is not None:
            kept = self._kept[portion.first : portion.last]
        rows, draw = self._rows(portion), draw_of(self.seed, portion.index, 0)
        if rows is not None:
            taken = self.rows[portion.entry.name][rows.begin : rows.end].astype(values.dtype).reshape(-1)
            written = self.chain.write_rows(taken, draw)
        else:
            written = self.chain.write(values, kept, draw)
        if self.residual is not None:
            arrived = self.chain.read(BytesIn(written), values.dtype, seeded, portion.size, rows)
            np.subtract(values, arrived, out=self.left[portion.entry.name].reshape(-1)[portion.first : portion.last])
        return written

    def _rows(self, portion: Portion) -> RowsOf | None:
        """The rows of a product that a portion takes; None where it is no product, or its values are fewer."""
        columns = self.arrived.get(portion.entry.name)
        rows = None if columns is None else RowsOf(columns, portion.first, portion.last)
        return None if rows is None or rows.count >= portion.size else rows

    def _begin(self, entry: Entry) -> None:
        """Look at the whole of an entry."""
        if self.residual is not None:
            array = self.arrays[entry.name]
            self.left[entry.name] = np.empty(array.shape, array.dtype)
        self._entry, self._values, self._kept = entry.name, self._whole(entry), None
        sparsifier = self.chain.sparsifier
        if sparsifier is not None and not sparsifier.seeded:
            self._kept = self.chain.choose(self._values, entry.name, draw_of(self.seed, 0, 1))

    def _whole(self, entry: Entry) -> Values:
        """An entry's values (n,), with what was left out before."""
        values = np.ascontiguousarray(self.arrays[entry.name]).reshape(-1)
        if self.residual is not None and entry.name in self.residual:
            values = values + self.residual[entry.name].reshape(-1)
        if not all(np.isfinite(values[at : at + FRAME_ELEMENTS]).all() for at in range(0, len(values), FRAME_ELEMENTS)):
            raise HanseError(
                ErrorCode.TRAINING_FAILED, f"update: entry {entry.name} has values that are not finite",
                hint="lower the learning rate, or clip the gradient norm",
            )  # fmt: skip
        return values
