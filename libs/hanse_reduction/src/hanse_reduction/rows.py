"""The updates' bytes of one leaf, in blocks of all K rows: verified, with what is not finite refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.tensors.digest import LEAF_BYTES
from hanse_fabric.tensors.layout import DTYPES
from hanse_learning.server.reduction import Array
from hanse_reduction.encoded import reader_of
from hanse_reduction.finite import all_finite, describe
from hanse_reduction.headers import check_header_bytes
from hanse_reduction.outputs import SegmentPiece, buffer, leaf_range, pieces
from hanse_reduction.plan import ReductionPlan, Refusals
from hanse_reduction.verified import ObjectReader

ROWS_BUDGET = 16 << 20
"""Bytes of a block, of all K rows together, at most."""

WIDTH_BYTES = 1 << 20
"""Bytes of one row of a block, at most: few rows then stay in the processor's cache."""

_DIVERGED = "training diverged at that site: lower its learning rate, clip the gradient norm, or check its data"


class RowReader:
    """Reads leaf after leaf of all rows into one buffer. One per thread."""

    def __init__(self, plan: ReductionPlan, refusals: Refusals) -> None:
        self._plan, self._refusals = plan, refusals
        self._width = _width(len(plan.rows), min(LEAF_BYTES, plan.layout.size))
        self._rows = buffer(len(plan.rows) * self._width).reshape(len(plan.rows), self._width)
        self.bytes_read = 0

    @contextmanager
    def leaf(self, index: int) -> Iterator[Iterator[tuple[SegmentPiece, list[Array]]]]:
        """Ask for leaf `index` of all rows, and then give its pieces in order with the rows' bytes, K x (n,) uint8.

        Rows are right only when the pieces came to their end and no update was refused.
        """
        start, stop = leaf_range(index, self._plan.layout.size)
        with ExitStack() as stack:
            readers = [
                reader_of(row.data, "update", (start, stop), partial(self._refusals.add, row.participant), stack)
                for row in self._plan.rows
            ]
            # All requests are made before the first byte is waited for, so that the store fetches for all at once.
            for reader in readers:
                reader.open()
            try:
                yield self._pieces(readers, start, stop)
            finally:
                self.bytes_read += sum(reader.bytes_read for reader in readers)

    def _pieces(self, readers: list[ObjectReader], start: int, stop: int) -> Iterator[tuple[SegmentPiece, list[Array]]]:
        for at in range(start, stop, self._width):
            end = min(at + self._width, stop)
            for reader, target in zip(readers, self._rows, strict=True):
                reader.read_into(at, target[: end - at].data)
            for piece in pieces(self._plan, at, end):
                rows = [row[piece.start - at : piece.stop - at] for row in self._rows]
                self._check(piece, rows)
                yield piece, rows

    def _check(self, piece: SegmentPiece, rows: list[Array]) -> None:
        """Refuse rows with another header, or with numbers that are not finite."""
        if piece.segment is None:
            for row, header in zip(self._plan.rows, rows, strict=True):
                expected = self._plan.header[piece.start : piece.stop]
                check_header_bytes(row.participant, header, expected, self._refusals.add)
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


def _width(rows: int, leaf: int) -> int:
    """Bytes of each of a block's K rows; a multiple of 64, so that no element straddles two blocks."""
    return min(leaf, WIDTH_BYTES, max(16 << 10, ROWS_BUDGET // rows // 64 * 64))
