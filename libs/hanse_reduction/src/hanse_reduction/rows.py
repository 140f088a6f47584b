"""The updates' bytes of one leaf, in blocks of all K rows: verified, with what is not finite refused."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.store.files import READ_BYTES
from hanse_fabric.store.port import RangeReader
from hanse_fabric.tensors.digest import LEAF_BYTES
from hanse_fabric.tensors.layout import DTYPES
from hanse_learning.server.reduction import Array
from hanse_reduction.finite import all_finite, describe
from hanse_reduction.headers import check_header_bytes
from hanse_reduction.outputs import Piece, buffer, leaf_range, pieces, read_hashed
from hanse_reduction.plan import Plan, Refusals, Row
from hanse_reduction.verified import tampered

ROWS_BUDGET = 16 << 20
"""Bytes of a block, of all K rows together, at most."""

WIDTH_BYTES = 1 << 20
"""Bytes of one row of a block, at most: few rows then stay in the processor's cache."""

_DIVERGED = "training diverged at that site: lower its learning rate, clip the gradient norm, or check its data"


@dataclass(slots=True)
class _Stream:
    """A row's bytes of one leaf on their way; `reader` is None once they are known to be missing."""

    row: Row
    reader: RangeReader | None
    hashed: hashlib._Hash = field(default_factory=hashlib.sha256)


class RowReader:
    """Reads leaf after leaf of all rows into one buffer. One per thread."""

    def __init__(self, plan: Plan, refusals: Refusals) -> None:
        self._plan, self._refusals = plan, refusals
        self._width = _width(len(plan.rows), min(LEAF_BYTES, plan.layout.size))
        self._rows = buffer(len(plan.rows) * self._width).reshape(len(plan.rows), self._width)
        self.bytes_read = 0

    @contextmanager
    def leaf(self, index: int) -> Iterator[Iterator[tuple[Piece, list[Array]]]]:
        """Ask for leaf `index` of all rows, and then give its pieces in order with the rows' bytes, K x (n,) uint8.

        Rows are right only when the pieces came to their end and no update was refused.
        """
        start, stop = leaf_range(index, self._plan.layout.size)
        with ExitStack() as stack:
            # All requests are made before the first byte is waited for, so that the store fetches for all at once.
            streams = [_Stream(row, self._open_row(row, start, stop, stack)) for row in self._plan.rows]
            yield self._pieces(streams, index, start, stop)

    def _pieces(self, streams: list[_Stream], index: int, start: int, stop: int) -> Iterator[tuple[Piece, list[Array]]]:
        for at in range(start, stop, self._width):
            end = min(at + self._width, stop)
            for stream, target in zip(streams, self._rows, strict=True):
                self._read_row(stream, target[: end - at])
            for piece in pieces(self._plan, at, end):
                rows = [row[piece.start - at : piece.stop - at] for row in self._rows]
                self._check(piece, rows)
                yield piece, rows
        for stream in streams:
            if stream.reader is not None and stream.hashed.hexdigest() != stream.row.data.leaf(index):
                self._refusals.add(stream.row.participant, tampered("update", index))

    def _open_row(self, row: Row, start: int, stop: int, stack: ExitStack) -> RangeReader | None:
        try:
            return stack.enter_context(row.data.source.open_range(start, stop - start))
        except HanseError as error:
            self._refuse(row, error)
            return None

    def _read_row(self, stream: _Stream, target: Array) -> None:
        if stream.reader is None:
            return
        try:
            for at in range(0, len(target), READ_BYTES):
                read_hashed(stream.reader, target[at : at + READ_BYTES], stream.hashed)
        except HanseError as error:
            self._refuse(stream.row, error)
            stream.reader = None
            return
        self.bytes_read += len(target)

    def _refuse(self, row: Row, error: HanseError) -> None:
        """An update that is not there, or is too short, is refused; what concerns the store itself is raised."""
        if error.code not in (ErrorCode.NOT_FOUND, ErrorCode.INVALID_INPUT):
            raise error
        self._refusals.add(row.participant, error)

    def _check(self, piece: Piece, rows: list[Array]) -> None:
        """Refuse rows with another header, or with numbers that are not finite."""
        if piece.segment is None:
            self._check_headers(piece, rows)
            return
        dtype = DTYPES[piece.segment.dtype]
        if dtype.kind != "f":
            return
        for row, data in zip(self._plan.rows, rows, strict=True):
            value = data.view(dtype)
            if not all_finite(value):
                reason = describe(value, piece.start, self._plan.layout)
                self._refusals.add(
                    row.participant, HanseError(ErrorCode.INVALID_INPUT, f"update: {reason}", hint=_DIVERGED)
                )

    def _check_headers(self, piece: Piece, rows: list[Array]) -> None:
        expected = memoryview(self._plan.header)[piece.start : piece.stop]
        for row, header in zip(self._plan.rows, rows, strict=True):
            try:
                check_header_bytes(header, expected)
            except HanseError as error:
                self._refusals.add(row.participant, error)


def _width(rows: int, leaf: int) -> int:
    """Bytes of each of a block's K rows; a multiple of 64, so that no element straddles two blocks."""
    return min(leaf, WIDTH_BYTES, max(16 << 10, ROWS_BUDGET // rows // 64 * 64))
