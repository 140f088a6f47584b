"""The leaf of every output that a worker makes: buffers that the model and the state are read into and changed in."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hanse_fabric.tensors.digest import LEAF_BYTES
from hanse_fabric.tensors.layout import DTYPES, Rule, Segment
from hanse_learning.server.reduction import Array
from hanse_reduction.plan import MODEL, ReductionPlan
from hanse_reduction.sources import Input
from hanse_reduction.verified import VerifiedReader, raise_it

Leaves = dict[str, Array]
"""One leaf (bytes) of every output, by name."""


class LeafMaker(Protocol):
    """Makes leaves. One per thread."""

    @property
    def bytes_read(self) -> int: ...

    def reduce(self, leaves: range) -> Iterator[tuple[int, dict[str, memoryview]]]:
        """Make adjacent `leaves` of every output: index and views, which are valid until the next.

        What is given out counts only if the iterator comes to its end and no update was refused.

        Raises:
            HanseError: when the job cannot be done: TAMPERED for the model, the state or the sum of masks,
                INVALID_INPUT when the new model is not finite.
        """
        ...


@dataclass(frozen=True, slots=True)
class SegmentPiece:
    """What of a block lies in one segment: bytes [start, stop) of the file; `segment` is None in the header."""

    segment: Segment | None
    start: int
    stop: int


class Outputs:
    """The outputs' buffers, used for leaf after leaf."""

    def __init__(self, plan: ReductionPlan) -> None:
        self._plan = plan
        leaf = min(LEAF_BYTES, plan.layout.size)
        self._buffers = {name: buffer(leaf) for name in plan.outputs}
        self.bytes_read = 0

    def views(self, index: int) -> tuple[int, int, Leaves]:
        """First byte and last + 1 of leaf `index`, and its part of every buffer."""
        start, stop = leaf_range(index, self._plan.layout.size)
        return start, stop, {name: whole[: stop - start] for name, whole in self._buffers.items()}

    def load(self, outputs: Leaves, start: int) -> None:
        """Fill the outputs with what they start from: the model, and the state or its initial values."""
        plan = self._plan
        if plan.base is not None:
            self._read_leaf("model", plan.base, start, outputs[MODEL])
        elif not plan.adopts:
            self._fill(outputs[MODEL], start, 0.0)
        for name, state in plan.state.items():
            view = outputs[name]
            if state is not None:
                self._read_leaf(f"state {name}", state, start, view)
            else:
                self._fill(view, start, plan.initial[name])

    def _fill(self, view: Array, start: int, value: float) -> None:
        """Make the bytes from `start` on those of a file whose parameters are `value`, all else 0."""
        view[...] = 0
        for piece in pieces(self._plan, start, start + len(view)):
            part = view[piece.start - start : piece.stop - start]
            if piece.segment is None:
                part[...] = np.frombuffer(self._plan.header, np.uint8)[piece.start : piece.stop]
            elif piece.segment.rule is Rule.PARAMETER:
                part.view(DTYPES[piece.segment.dtype])[...] = value

    def _read_leaf(self, what: str, data: Input, start: int, view: Array) -> None:
        with ExitStack() as stack:
            VerifiedReader(data, what, ((start, start + len(view)),), raise_it, stack).read_into(start, view.data)
        self.bytes_read += len(view)


def leaf_range(index: int, size: int) -> tuple[int, int]:
    """First byte and last + 1 of leaf `index` of a file of `size` bytes."""
    return index * LEAF_BYTES, min((index + 1) * LEAF_BYTES, size)


def pieces(plan: ReductionPlan, start: int, stop: int) -> Iterator[SegmentPiece]:
    """What bytes [start, stop) of the file consist of: header and segments, cut to that range, in order."""
    head = len(plan.header)
    if start < head:
        yield SegmentPiece(None, start, min(stop, head))
    for segment in plan.layout.segments:
        if segment.start < stop and start < segment.stop:
            yield SegmentPiece(segment, max(start, segment.start), min(stop, segment.stop))


def buffer(size: int) -> Array:
    """(size,) bytes of a mapping of their own, which goes back to the system with the worker: the allocator would
    keep buffers of this size per thread, and the process would grow from job to job."""
    return np.frombuffer(mmap.mmap(-1, size), np.uint8)
