"""The unit of work: one leaf (LEAF_BYTES of the file) of all inputs becomes one leaf of all outputs.

A worker owns its buffers and uses them for leaf after leaf: K rows of a sub-block, and one leaf per output, which the
model and the optimizer's state are read into and changed in place. So memory is ROWS_BUDGET + leaf x outputs per
worker, whatever K and the model's size. Every byte that is read is hashed against its reference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np

from hanse_aggregator.finite import all_finite, describe
from hanse_aggregator.outputs import Outputs, Piece, buffer, pieces, read_block
from hanse_aggregator.plan import MODEL, Plan, Refusals, Row, check_header_piece
from hanse_aggregator.verified import tampered
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.store.files import BLOCK_BYTES
from hanse_fabric.store.port import RangeReader
from hanse_fabric.tensors.digest import LEAF_BYTES
from hanse_fabric.tensors.layout import DTYPES, Rule
from hanse_learning.server import buffers
from hanse_learning.server.reduction import Array

ROWS_BUDGET = 16 << 20
"""Bytes of all K rows that a worker holds at once, at most."""

SPAN_BYTES = 1 << 20
"""Bytes of one row that a worker holds at once, at most: few rows then stay in the processor's cache."""

_MEANS_BYTES = 64 << 10
"""Bytes of a row of means that are read at once beside their variances."""
_DIVERGED = "training diverged at that site: lower its learning rate, clip the gradient norm, or check its data"


@dataclass(slots=True)
class _Stream:
    """A row's bytes of one leaf on their way; `reader` is None once they are known to be missing."""

    row: Row
    reader: RangeReader | None
    hashed: hashlib._Hash = field(default_factory=hashlib.sha256)


class LeafWorker:
    """Reduces leaves one after another. One per thread."""

    def __init__(self, plan: Plan, refusals: Refusals) -> None:
        self._plan, self._refusals = plan, refusals
        leaf = min(LEAF_BYTES, plan.layout.size)
        self._span = _span(len(plan.rows), leaf)
        self._rows = buffer(len(plan.rows) * self._span).reshape(len(plan.rows), self._span)
        self._outputs = Outputs(plan)
        self._bytes_read = 0

    @property
    def bytes_read(self) -> int:
        return self._bytes_read + self._outputs.bytes_read

    def reduce(self, leaves: range) -> Iterator[tuple[int, dict[str, memoryview]]]:
        """See `Worker.reduce`."""
        for index in leaves:
            made = self._reduce_leaf(index)
            if made is not None:
                yield index, made

    def _reduce_leaf(self, index: int) -> dict[str, memoryview] | None:
        """The leaves by output name, or None when updates were refused (here or by another worker before)."""
        plan = self._plan
        start, stop, outputs = self._outputs.views(index)
        with ExitStack() as stack:
            # All requests are made before the first byte is waited for, so that the store fetches for all at once.
            streams = [_Stream(row, self._open_row(row, start, stop, stack)) for row in plan.rows]
            self._outputs.load(outputs, index, start)
            for at in range(start, stop, self._span):
                end = min(at + self._span, stop)
                for stream, target in zip(streams, self._rows, strict=True):
                    self._read_row(stream, target[: end - at])
                for piece in pieces(plan, at, end):
                    local = {name: view[piece.start - start : piece.stop - start] for name, view in outputs.items()}
                    self._reduce_piece(piece, self._rows[:, piece.start - at : piece.stop - at], local)
        for stream in streams:
            if stream.reader is not None and stream.hashed.hexdigest() != stream.row.data.leaf(index):
                self._refusals.add(
                    stream.row.participant,
                    tampered("update", index),
                )
        return None if self._refusals else {name: view.data for name, view in outputs.items()}

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
            for at in range(0, len(target), BLOCK_BYTES):
                read_block(stream.reader, target[at : at + BLOCK_BYTES], stream.hashed)
        except HanseError as error:
            self._refuse(stream.row, error)
            stream.reader = None
            return
        self._bytes_read += len(target)

    def _refuse(self, row: Row, error: HanseError) -> None:
        """An update that is not there, or is too short, is refused; what concerns the store itself is raised."""
        if error.code not in (ErrorCode.NOT_FOUND, ErrorCode.INVALID_INPUT):
            raise error
        self._refusals.add(row.participant, error)

    def _reduce_piece(self, piece: Piece, rows: Array, outputs: dict[str, Array]) -> None:
        """Check the rows (K, bytes) of a piece and reduce them into the outputs' bytes."""
        plan, segment = self._plan, piece.segment
        if segment is None:
            self._check_headers(piece, rows)
            if plan.base is None:
                outputs[MODEL][...] = rows[0]
            return
        dtype = DTYPES[segment.dtype]
        values = [row.view(dtype) for row in rows]
        if dtype.kind == "f":
            for row, value in zip(plan.rows, values, strict=True):
                if not all_finite(value):
                    reason = describe(value, piece.start, plan.layout)
                    self._refusals.add(
                        row.participant, HanseError(ErrorCode.INVALID_INPUT, f"update: {reason}", hint=_DIVERGED)
                    )
        if self._refusals:
            return
        model = outputs[MODEL].view(dtype)
        if plan.base is None:
            model[...] = values[0]
        elif segment.rule is Rule.PARAMETER:
            state = {name: outputs[name].view(dtype) for name in plan.state}
            with np.errstate(over="ignore", invalid="ignore"):
                plan.strategy.apply(model, values, plan.weights, state, plan.round)
            if not all_finite(model):
                raise HanseError(
                    ErrorCode.INVALID_INPUT,
                    f"new model: {describe(model, piece.start, plan.layout)}",
                    hint="lower the learning rate of the server or of the sites",
                )
        elif segment.rule is Rule.AVERAGE:
            buffers.average(values, plan.weights, model)
        elif segment.rule is Rule.KEEP_NEWEST:
            buffers.keep_newest(values, model)
        else:
            self._pool(piece, values, model)

    def _check_headers(self, piece: Piece, rows: Array) -> None:
        expected = memoryview(self._plan.header)[piece.start : piece.stop]
        for row, header in zip(self._plan.rows, rows, strict=True):
            try:
                check_header_piece(header, expected)
            except HanseError as error:
                self._refusals.add(row.participant, error)

    def _pool(self, piece: Piece, values: list[Array], model: Array) -> None:
        """Variances need the means of the same columns, which lie elsewhere in the file: read in small steps."""
        layout, itemsize = self._plan.layout, model.itemsize
        for entry in layout:
            first = layout.offsets[entry.name]
            start, stop = max(first, piece.start), min(first + entry.nbytes, piece.stop)
            if start >= stop or entry.rule is not Rule.POOL_VARIANCE or entry.mean is None:
                continue
            shift = layout.offsets[entry.mean] - first
            for at in range(start, stop, _MEANS_BYTES):
                size = min(_MEANS_BYTES, stop - at)
                means = [np.frombuffer(row.data.read(at + shift, size), model.dtype) for row in self._plan.rows]
                part = slice((at - piece.start) // itemsize, (at - piece.start + size) // itemsize)
                buffers.pool_variance([value[part] for value in values], means, self._plan.weights, model[part])


def _span(rows: int, leaf: int) -> int:
    """Bytes of each of K rows held at once; a multiple of 64, so that no element straddles two sub-blocks."""
    return min(leaf, SPAN_BYTES, max(16 << 10, ROWS_BUDGET // rows // 64 * 64))
