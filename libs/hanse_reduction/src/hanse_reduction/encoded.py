"""Encoded updates: read as if they were the tensor files that they stand for, any part without the rest.

The head and the table of frames are verified once, by the leaves that hold them; then each frame by its digest in the
table. So a reader verifies what it gives out without reading whole leaves of what is many times smaller than the model.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ObjectRef
from hanse_fabric.store.files import READ_BYTES
from hanse_fabric.store.port import RangeReader
from hanse_fabric.tensors.digest import LEAF_BYTES
from hanse_fabric.tensors.layout import Layout
from hanse_learning.codecs.chain import Chain
from hanse_learning.codecs.factors import Columns, check_size, read_columns
from hanse_learning.codecs.frames import ROW, Frame, Head, check_table, frames_of, head_length, read_head
from hanse_learning.codecs.reading import check_head, decode_frame
from hanse_reduction.sources import Input
from hanse_reduction.verified import ObjectReader, VerifiedReader, raise_it

_HEAD_BYTES = 12


@dataclass(frozen=True)
class EncodedInput:
    """One encoded update, whose head and table are verified. `read` speaks of the decoded file's bytes.

    Attributes:
        table: length and digest of each frame.
        starts: the first byte of each frame in the encoded file, and the end of the last.
        columns: of its products.
    """

    data: Input
    layout: Layout
    chain: Chain
    seed: int
    table: NDArray[np.void]
    starts: NDArray[np.int64]
    columns: Columns

    @property
    def ref(self) -> ObjectRef:
        """Of the encoded file."""
        return self.data.ref

    @cached_property
    def frames(self) -> tuple[Frame, ...]:
        return frames_of(self.layout)

    @cached_property
    def _firsts(self) -> list[int]:
        return [frame.start for frame in self.frames]

    def holding(self, at: int) -> int:
        """The number of the frame that holds byte `at` of the decoded file."""
        return bisect_right(self._firsts, at) - 1

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the decoded file.

        Raises:
            HanseError: TAMPERED, INVALID_INPUT, NOT_FOUND.
        """
        made = bytearray(size)
        with ExitStack() as stack:
            reader = EncodedReader(self, "update", (offset, offset + size), raise_it, stack)
            reader.read_into(offset, memoryview(made))
        return bytes(made)


def open_encoded(data: Input, layout: Layout, chain: Chain) -> EncodedInput:
    """Read and verify what tells of the frames of an encoded update.

    Args:
        layout: of the model.
        chain: of the job.

    Raises:
        HanseError: INVALID_INPUT where the update is not encoded as the job says, or not of the model's layout;
            TAMPERED; UNKNOWN_SCHEMA.
    """
    head = _head(data)
    check_head(head, layout, chain.sections)
    if head.header:
        raise _bad("it has a layout in it, as models have")
    check_size(layout, head.columns, chain)
    start, frames = len(head.encode()), len(frames_of(layout))
    middle = start + frames * ROW.itemsize
    stop = middle + head.columns
    if stop > data.ref.size:
        raise _bad(f"it ends at byte {data.ref.size}, within its table of frames")
    told = _verified(data, stop)
    table = np.frombuffer(told[start:middle], ROW)
    check_table(table, frames_of(layout))
    columns = read_columns(layout, told[middle:], chain)
    starts = stop + np.concatenate([[0], np.cumsum(table["length"], dtype=np.int64)])
    if int(starts[-1]) != data.ref.size:
        raise _bad(f"it has {data.ref.size} bytes, its table describes {int(starts[-1])}")
    return EncodedInput(data, layout, chain, head.seed, table, starts, columns)


def _head(data: Input) -> Head:
    first = data.read(0, min(_HEAD_BYTES, data.ref.size))
    length = head_length(first)
    if length > data.ref.size:
        raise _bad(f"it ends at byte {data.ref.size}, within its head")
    return read_head(data.read(0, length))


def _verified(data: Input, stop: int) -> bytes:
    """The first `stop` bytes, and the leaves that hold them hashed."""
    end = min(-(-stop // LEAF_BYTES) * LEAF_BYTES, data.ref.size)
    made = bytearray(stop)
    with ExitStack() as stack:
        reader = VerifiedReader(data, "update", ((0, end),), raise_it, stack)
        reader.read_into(0, memoryview(made))
        reader.finish()
    return bytes(made)


@dataclass(slots=True)
class EncodedReader(ObjectReader):
    """Gives out one extent of the decoded file, frame after frame; each is verified when it is decoded."""

    data: EncodedInput
    name: str
    extent: tuple[int, int]
    failed: Callable[[HanseError], None]
    stack: ExitStack
    bytes_read: int = 0
    _reader: RangeReader | None = None
    _next: int = 0
    _frame: Frame | None = None
    _decoded: NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))
    _dead: bool = False

    def open(self) -> None:
        """See `ObjectReader`."""
        if not self._dead and self._reader is None:
            self._guard(self._open)

    def _open(self) -> None:
        encoded = self.data
        begin, end = self.extent
        if end <= encoded.layout.data_start:
            return
        first, last = max(0, encoded.holding(begin)), encoded.holding(end - 1)
        start, stop = int(encoded.starts[first]), int(encoded.starts[last + 1])
        self._next = first
        self._reader = self.stack.enter_context(encoded.data.source.open_range(start, stop - start))

    def _read(self, at: int, into: memoryview) -> None:
        if self._reader is None:
            self._open()
        target = np.frombuffer(into, np.uint8)
        header = self.data.layout.header[at : at + len(target)]
        target[: len(header)] = np.frombuffer(header, np.uint8)
        done = len(header)
        while done < len(target):
            while self._frame is None or self._frame.stop <= at + done:
                self._advance()
            begin = at + done - self._frame.start
            part = self._decoded[begin : begin + len(target) - done]
            target[done : done + len(part)] = part
            done += len(part)

    def _advance(self) -> None:
        encoded, index = self.data, self._next
        packed = bytearray(int(encoded.table["length"][index]))
        view = memoryview(packed)
        for start in range(0, len(packed), READ_BYTES):
            assert self._reader is not None  # noqa: S101
            self._reader.read_into(view[start : start + READ_BYTES])
        self.bytes_read += len(packed)
        if hashlib.sha256(packed).digest() != encoded.table["digest"][index].tobytes():
            raise self._tampered(f"frame {index}")
        self._frame = encoded.frames[index]
        self._decoded = decode_frame(self._frame, bytes(packed), encoded.chain, encoded.seed, encoded.columns)
        self._next += 1


def _bad(why: str) -> HanseError:
    return HanseError(ErrorCode.INVALID_INPUT, f"encoded update: {why}", hint="send the bytes that were encoded")


def reader_of(
    data: Input | EncodedInput, name: str, extent: tuple[int, int], failed: Callable[[HanseError], None],
    stack: ExitStack,
) -> ObjectReader:  # fmt: skip
    """Reads bytes [start, stop) of a tensor file from front to back, verified, whether it came encoded or not."""
    if isinstance(data, EncodedInput):
        return EncodedReader(data, name, extent, failed, stack)
    return VerifiedReader(data, name, (extent,), failed, stack)
