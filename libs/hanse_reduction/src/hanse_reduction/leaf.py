"""The unit of work: one leaf (LEAF_BYTES of the file) of all inputs becomes one leaf of all outputs.

A worker owns its buffers and uses them for leaf after leaf: K rows of a block, and one leaf per output, which the
model and the optimizer's state are read into and changed in place. So memory is ROWS_BUDGET + leaf x outputs per
worker, whatever K and the model's size. Every byte that is read is hashed against its reference.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hanse_fabric.errors import invalid
from hanse_fabric.tensors.layout import DTYPES, Rule
from hanse_learning.server import buffers
from hanse_learning.server.reduction import Array
from hanse_reduction.arithmetic import Arithmetic
from hanse_reduction.finite import require_finite
from hanse_reduction.outputs import Leaves, Outputs, SegmentPiece
from hanse_reduction.plan import MODEL, ReductionPlan, Refusals
from hanse_reduction.rows import RowReader

_MEANS_BYTES = 64 << 10
"""Bytes of a row of means that are read at once beside their variances."""


class LeafWorker:
    """A `Worker` that reduces plain updates. One per thread."""

    def __init__(self, plan: ReductionPlan, refusals: Refusals, arithmetic: Arithmetic) -> None:
        self._plan, self._refusals, self._arithmetic = plan, refusals, arithmetic
        self._rows, self._outputs = RowReader(plan, refusals), Outputs(plan)

    @property
    def bytes_read(self) -> int:
        return self._rows.bytes_read + self._outputs.bytes_read

    def reduce(self, leaves: range) -> Iterator[tuple[int, dict[str, memoryview]]]:
        for index in leaves:
            start, _, outputs = self._outputs.views(index)
            with self._rows.leaf(index) as found:
                self._outputs.load(outputs, start)
                for piece, rows in found:
                    if not self._refusals:
                        local = {name: view[piece.start - start : piece.stop - start] for name, view in outputs.items()}
                        self._reduce_piece(piece, rows, local)
            if not self._refusals:
                yield index, {name: view.data for name, view in outputs.items()}

    def _reduce_piece(self, piece: SegmentPiece, rows: list[Array], outputs: Leaves) -> None:
        """Reduce the rows K x (bytes,) of a piece into the outputs' bytes."""
        plan, segment = self._plan, piece.segment
        if segment is None or plan.adopts:
            if plan.adopts:
                outputs[MODEL][...] = rows[0]
            return
        dtype = DTYPES[segment.dtype]
        values = [row.view(dtype) for row in rows]
        model = outputs[MODEL].view(dtype)
        if segment.rule is Rule.PARAMETER:
            state = {name: outputs[name].view(dtype) for name in plan.state}
            with np.errstate(over="ignore", invalid="ignore"):
                self._arithmetic.apply(
                    plan.strategy, model, values, plan.weights, state, plan.round, at=piece.start
                )  # fmt: skip
            require_finite(model, piece.start, plan.layout)
            return
        counted = [values[k] for k in plan.counted]
        if segment.rule is Rule.AVERAGE:
            buffers.average(counted, plan.buffer_weights, model)
        elif segment.rule is Rule.KEEP_NEWEST:
            buffers.keep_newest(counted, model)
        elif segment.rule is Rule.POOL_VARIANCE:
            self._pool(piece, counted, model)
        else:
            raise invalid("layout", segment.rule.value, "a rule by which plain updates are reduced")

    def _pool(self, piece: SegmentPiece, values: list[Array], model: Array) -> None:
        """Variances need the means of the same columns, which lie elsewhere in the file: read in small steps."""
        layout, itemsize = self._plan.layout, model.itemsize
        counted = [self._plan.rows[k] for k in self._plan.counted]
        for entry in layout:
            first = layout.offsets[entry.name]
            start, stop = max(first, piece.start), min(first + entry.nbytes, piece.stop)
            if start >= stop or entry.rule is not Rule.POOL_VARIANCE or entry.mean is None:
                continue
            shift = layout.offsets[entry.mean] - first
            for at in range(start, stop, _MEANS_BYTES):
                size = min(_MEANS_BYTES, stop - at)
                means = [np.frombuffer(row.data.read(at + shift, size), model.dtype) for row in counted]
                part = slice((at - piece.start) // itemsize, (at - piece.start + size) // itemsize)
                buffers.pool_variance([value[part] for value in values], means, self._plan.buffer_weights, model[part])
