"""Matrices as products of two narrow ones, and how these lie in an encoded update.

An entry of n rows and m columns (of more than two dimensions: the first, and all others) becomes P Q^T, with P (n, r)
and Q (m, r). The rows of P lie in the frames of the entry's portions. The columns, Q, of all entries lie together
before the frames: they are small, every portion needs all of its entry's, and so each frame is still decoded alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import invalid
from hanse_fabric.tensors.layout import Entry, Layout, Rule
from hanse_learning.codecs.bytes_in import BytesIn
from hanse_learning.codecs.chain import Chain
from hanse_learning.codecs.frames import FRAME_ELEMENTS, PACKED_ROOM, draw_of, frames_of
from hanse_learning.codecs.stages import Draw, Values

Wide = NDArray[np.float64]
Columns = Mapping[str, Wide]
"""Q (m, r) of the entries that have one, by name."""

_BLOCK = 1 << 22
"""Elements of a matrix that are multiplied at once."""
_LEAST = 2.0**-60
"""Matrices of smaller numbers only, or of one above its inverse, are scaled."""


@dataclass(frozen=True, slots=True)
class LowRank:
    """One step of a power iteration from the former update's columns (Vogels et al. 2019, algorithm 1, by one site).

    The paper averages P, and then Q, over all sites within a step. Here each site makes both of its own update: a round
    is one exchange, whoever drops out takes nothing along, and strategies see each site's update.
    """

    rank: int

    def width(self, rows: int, columns: int) -> int:
        """r of such a matrix; 0: it is sent as it is, for its factors would be no smaller, or its columns too many to
        hold for each update."""
        width = min(self.rank, rows, columns)
        return width if columns <= FRAME_ELEMENTS and width * (rows + columns) < rows * columns else 0

    def factors(self, matrix: Values, former: Wide | None, draw: Draw) -> tuple[Wide, Wide]:
        """See `Factorizer`."""
        rows, columns = matrix.shape
        width = self.width(rows, columns)
        begin = np.zeros((columns, width)) if former is None or former.shape != (columns, width) else former
        if not begin.any():
            begin = np.multiply(draw(columns * width) >> np.uint64(11), 2.0**-52).reshape(columns, width) - 1.0
        scale = max(abs(float(np.max(matrix, initial=0.0))), abs(float(np.min(matrix, initial=0.0)))) or 1.0
        if _LEAST < scale < 1 / _LEAST:
            scale = 1.0
        left = np.linalg.qr(np.concatenate([_times(part, begin) for _, part in _parts(matrix, scale)]))[0]
        right = np.zeros((columns, width))
        for first, part in _parts(matrix, scale):
            right += _times(part.T, left[first : first + len(part)])
        return left, right * scale


def _times(part: Values, narrow: Wide) -> Wide:
    """Their product, in the part's precision: what that loses is left out, and sent later."""
    made: Wide = (part @ narrow.astype(part.dtype)).astype(np.float64)
    return made


def _parts(matrix: Values, scale: float) -> Iterator[tuple[int, Values]]:
    """Some rows at a time, with the number of the first; scaled, so that sums of what is huge or tiny are numbers."""
    step, dtype = max(1, _BLOCK // matrix.shape[1]), np.float64 if matrix.dtype.itemsize > 4 else np.float32
    for first in range(0, len(matrix), step):
        part = matrix[first : first + step]
        yield first, part.astype(dtype, copy=False) if scale == 1.0 else (part / np.float64(scale)).astype(dtype)


def matrix_shape(entry: Entry) -> tuple[int, int]:
    """An entry's rows and columns; (0, 0) of one that is no matrix."""
    if len(entry.shape) < 2 or not entry.count:
        return 0, 0
    return entry.shape[0], math.prod(entry.shape[1:])


@dataclass(frozen=True, slots=True)
class RowsOf:
    """Elements [first, last) of an entry that is a product, which take whole rows of P.

    Attributes:
        columns: Q (m, r).
    """

    columns: Wide
    first: int
    last: int

    @property
    def begin(self) -> int:
        """The first row of P that is needed."""
        return self.first // len(self.columns)

    @property
    def end(self) -> int:
        """Behind the last one."""
        return -(-self.last // len(self.columns))

    @property
    def count(self) -> int:
        """Numbers of P that are needed."""
        return (self.end - self.begin) * int(self.columns.shape[1])

    def product(self, rows: Values, dtype: np.dtype[Any]) -> Values:
        """The elements (last - first,), of the rows (count,).

        Products are added in order of r, each by itself, so that every machine finds the same bits.
        """
        left = rows.reshape(-1, self.columns.shape[1]).astype(np.float64)
        made = np.zeros((len(left), len(self.columns)))
        with np.errstate(over="ignore", invalid="ignore"):
            for number in range(self.columns.shape[1]):
                made += left[:, number, None] * self.columns[None, :, number]
        start = self.begin * len(self.columns)
        most = float(np.finfo(dtype).max)
        return np.clip(made.reshape(-1)[self.first - start : self.last - start], -most, most).astype(dtype)


def widths(layout: Layout, chain: Chain) -> dict[str, tuple[int, int]]:
    """Of the entries that become products: their columns, and r."""
    if chain.factorizer is None:
        return {}
    found = {}
    for entry in layout:
        rows, columns = matrix_shape(entry)
        if entry.rule is Rule.PARAMETER and rows and (width := chain.factorizer.width(rows, columns)):
            found[entry.name] = (columns, width)
    return found


def write_columns(layout: Layout, columns: Columns, chain: Chain, seed: int) -> tuple[bytes, Columns]:
    """The columns of all products as they travel, and as they arrive."""
    written, dtypes = [], {entry.name: entry.numpy for entry in layout}
    for number, name in enumerate(widths(layout, chain)):
        most = float(np.finfo(dtypes[name]).max)
        values = np.clip(columns[name], -most, most).astype(dtypes[name]).reshape(-1)
        written.append(chain.numbers(values, draw_of(seed, _portions(layout) + number, 0)))
    packed = chain.packed(b"".join(written)) if written else b""
    return packed, read_columns(layout, packed, chain)


def read_columns(layout: Layout, packed: bytes, chain: Chain) -> Columns:
    """The columns of an update, verified.

    Raises:
        HanseError: INVALID_INPUT for bytes that `write_columns` does not make, or numbers that are not finite.
    """
    wanted, dtypes = widths(layout, chain), {entry.name: entry.numpy for entry in layout}
    if not wanted:
        return {}
    data = BytesIn(chain.unpacked(packed, _most(layout, chain)), "the columns of its products")
    found = {}
    for name, (columns, width) in wanted.items():
        values = chain.read_numbers(data, columns * width, dtypes[name]).astype(np.float64)
        if not np.isfinite(values).all():
            raise data.bad(f"are not finite numbers, of entry {name}")
        found[name] = values.reshape(columns, width)
    data.end()
    return found


def check_size(layout: Layout, size: int, chain: Chain) -> None:
    """Check how many bytes an update says that its columns have.

    Raises:
        HanseError: INVALID_INPUT where there can be none, or not so many.
    """
    most = _most(layout, chain) + PACKED_ROOM if widths(layout, chain) else 0
    if size > most:
        raise invalid("encoded update's columns", size, f"at most {most} bytes")


def _most(layout: Layout, chain: Chain) -> int:
    """Bytes of the columns before they are packed, at most; a quantizer may add a scale to each."""
    dtypes = {entry.name: entry.numpy for entry in layout}
    return sum(columns * width * dtypes[name].itemsize + 64 for name, (columns, width) in widths(layout, chain).items())


def _portions(layout: Layout) -> int:
    return sum(len(frame.portions) for frame in frames_of(layout))
