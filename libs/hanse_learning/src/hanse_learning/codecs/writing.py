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
from hanse_learning.codecs.chain import Chain, Places
from hanse_learning.codecs.frames import ROW, Frame, Portion, draw_of, frames_of, head_of
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
    return _Writer(layout, arrays, chain, seed, residual, with_layout).write(file)


@dataclass(slots=True)
class _Writer:
    layout: Layout
    arrays: Arrays
    chain: Chain
    seed: int
    residual: Arrays | None
    with_layout: bool
    left: dict[str, Values] = field(default_factory=dict)
    _entry: str = ""
    _values: Values = field(default_factory=lambda: np.zeros(0, np.float32))
    _kept: Mask | None = None

    def write(self, file: BinaryIO) -> dict[str, Values]:
        frames = frames_of(self.layout)
        head = head_of(self.layout, self.chain.sections, self.seed, with_layout=self.with_layout).encode()
        table = np.zeros(len(frames), ROW)
        file.write(head)
        file.write(table.tobytes())
        if self.with_layout:
            file.write(self.layout.header)
        for index, frame in enumerate(frames):
            packed = self.chain.packer.pack(self._frame(frame))
            table["length"][index] = len(packed)
            table["digest"][index] = np.void(hashlib.sha256(packed).digest())
            file.write(packed)
        file.seek(len(head))
        file.write(table.tobytes())
        return self.left

    def _frame(self, frame: Frame) -> bytes:
        write = self._parameter if frame.parameter else self._buffer
        return b"".join(write(portion) for portion in frame.portions)

    def _buffer(self, portion: Portion) -> bytes:
        flat = self.arrays[portion.entry.name].reshape(-1)
        return bytes([Places.RAW]) + flat[portion.first : portion.last].tobytes()

    def _parameter(self, portion: Portion) -> bytes:
        if portion.entry.name != self._entry:
            self._begin(portion.entry)
        values = self._values[portion.first : portion.last]
        sparsifier, kept = self.chain.sparsifier, None
        seeded = None
        if sparsifier is not None and sparsifier.seeded:
            kept = seeded = sparsifier.choose(values, portion.entry.name, draw_of(self.seed, portion.index, 1))
        elif self._kept is not None:
            kept = self._kept[portion.first : portion.last]
        written = self.chain.write(values, kept, draw_of(self.seed, portion.index, 0))
        if self.residual is not None:
            arrived = self.chain.read(BytesIn(written), values.dtype, seeded, portion.size)
            np.subtract(values, arrived, out=self.left[portion.entry.name].reshape(-1)[portion.first : portion.last])
        return written

    def _begin(self, entry: Entry) -> None:
        """Look at the whole of an entry."""
        array = self.arrays[entry.name]
        values = np.ascontiguousarray(array).reshape(-1)
        if self.residual is not None:
            if entry.name in self.residual:
                values = values + self.residual[entry.name].reshape(-1)
            self.left[entry.name] = np.empty(array.shape, array.dtype)
        if not bool(np.isfinite(values).all()):
            raise HanseError(
                ErrorCode.TRAINING_FAILED, f"update: entry {entry.name} has values that are not finite",
                hint="lower the learning rate, or clip the gradient norm",
            )  # fmt: skip
        self._entry, self._values, self._kept = entry.name, values, None
        sparsifier = self.chain.sparsifier
        if sparsifier is not None and not sparsifier.seeded:
            self._kept = sparsifier.choose(values, entry.name, draw_of(self.seed, 0, 1))
