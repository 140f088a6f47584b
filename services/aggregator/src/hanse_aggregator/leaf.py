"""The unit of work: one leaf (LEAF_BYTES of the file) of all inputs becomes one leaf of all outputs.

A worker owns its buffers and uses them for leaf after leaf: K rows of a sub-block, and one leaf per output, which the
model and the optimizer's state are read into and changed in place. So memory is ROWS_BUDGET + leaf x outputs per
worker, whatever K and the model's size. Every byte that is read is hashed against its reference.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np

from hanse_aggregator.finite import all_finite, describe
from hanse_aggregator.plan import MODEL, Plan, Refusals, Row, check_header_piece
from hanse_aggregator.sources import Input
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.store.files import BLOCK_BYTES
from hanse_fabric.store.port import RangeReader
from hanse_fabric.tensors.digest import LEAF_BYTES
from hanse_fabric.tensors.layout import DTYPES, Rule, Segment
from hanse_learning.server import buffers
from hanse_learning.server.reduction import Array

ROWS_BUDGET = 16 << 20
"""Bytes of all K rows that a worker holds at once, at most."""

SPAN_BYTES = 1 << 20
"""Bytes of one row that a worker holds at once, at most: few rows then stay in the processor's cache."""

_MEANS_BYTES = 64 << 10
"""Bytes of a row of means that are read at once beside their variances."""
_DIVERGED = "training diverged at that site: lower its learning rate, clip the gradient norm, or check its data"


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes [start, stop) of the file; `segment` is None in the header."""

    segment: Segment | None
    start: int
    stop: int


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
        self._rows = _buffer(len(plan.rows) * self._span).reshape(len(plan.rows), self._span)
        self._outputs = {name: _buffer(leaf) for name in plan.outputs}
        self.bytes_read = 0

    def reduce(self, index: int) -> dict[str, memoryview] | None:
        """Make leaf `index` of every output; the views are valid until the next call.

        Returns:
            The leaves by output name, or None when updates were refused (here or by another worker before).

        Raises:
            HanseError: TAMPERED for the model or the state; INVALID_INPUT when the new model is not finite.
        """
        plan = self._plan
        start, stop = index * LEAF_BYTES, min((index + 1) * LEAF_BYTES, plan.layout.size)
        outputs = {name: buffer[: stop - start] for name, buffer in self._outputs.items()}
        with ExitStack() as stack:
            # All requests are made before the first byte is waited for, so that the store fetches for all at once.
            streams = [_Stream(row, self._open_row(row, start, stop, stack)) for row in plan.rows]
            self._load(outputs, index, start)
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
                    _tampered("update", index),
                )
        return None if self._refusals else {name: view.data for name, view in outputs.items()}

    def _load(self, outputs: dict[str, Array], index: int, start: int) -> None:
        """Fill the outputs with what they start from: the model, and the state or its initial values."""
        plan = self._plan
        if plan.base is not None:
            self._read_leaf("model", plan.base, index, start, outputs[MODEL])
        for name, state in plan.state.items():
            view = outputs[name]
            if state is not None:
                self._read_leaf(f"state {name}", state, index, start, view)
                continue
            view[...] = 0
            for piece in pieces(plan, start, start + len(view)):
                part = view[piece.start - start : piece.stop - start]
                if piece.segment is None:
                    part[...] = np.frombuffer(plan.header, np.uint8)[piece.start : piece.stop]
                elif piece.segment.rule is Rule.PARAMETER:
                    part.view(DTYPES[piece.segment.dtype])[...] = plan.initial[name]

    def _read_leaf(self, what: str, data: Input, index: int, start: int, view: Array) -> None:
        hashed = hashlib.sha256()
        with data.source.open_range(start, len(view)) as reader:
            for at in range(0, len(view), BLOCK_BYTES):
                _read(reader, view[at : at + BLOCK_BYTES], hashed)
        self.bytes_read += len(view)
        if hashed.hexdigest() != data.leaf(index):
            raise _tampered(what, index)

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
                _read(stream.reader, target[at : at + BLOCK_BYTES], stream.hashed)
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


def pieces(plan: Plan, start: int, stop: int) -> Iterator[Piece]:
    """What bytes [start, stop) of the file consist of: header and segments, cut to that range, in order."""
    head = len(plan.header)
    if start < head:
        yield Piece(None, start, min(stop, head))
    for segment in plan.layout.segments:
        if segment.start < stop and start < segment.stop:
            yield Piece(segment, max(start, segment.start), min(stop, segment.stop))


def _read(reader: RangeReader, block: Array, hashed: hashlib._Hash) -> None:
    """Fill a block and hash it while it is in the processor's cache."""
    reader.read_into(block.data)
    hashed.update(block.data)


def _buffer(size: int) -> Array:
    """(size,) bytes of a mapping of their own, which goes back to the system with the worker: the allocator would
    keep buffers of this size per thread, and the process would grow from job to job."""
    return np.frombuffer(mmap.mmap(-1, size), np.uint8)


def _span(rows: int, leaf: int) -> int:
    """Bytes of each of K rows held at once; a multiple of 64, so that no element straddles two sub-blocks."""
    return min(leaf, SPAN_BYTES, max(16 << 10, ROWS_BUDGET // rows // 64 * 64))


def _tampered(what: str, index: int) -> HanseError:
    return HanseError(
        ErrorCode.TAMPERED,
        f"{what}: leaf {index} does not have the digest that was announced",
        hint="they are not the bytes that the site signed; look at its code, its disk, and what lies between",
    )
