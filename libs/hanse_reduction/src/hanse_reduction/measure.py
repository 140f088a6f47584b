"""The first pass of reductions that look at all updates before they combine any: what they measure, added up.

The order of summation is fixed: the blocks of a leaf, the leaves of a group of MEASURE_LEAVES, the groups. Threads and
MEASURE jobs take leaves and groups, so that the totals have the same bits in one job and in many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from threading import Lock

import numpy as np

from hanse_fabric.errors import invalid
from hanse_fabric.messages import ObjectRef
from hanse_fabric.messages.reduction_jobs import MEASURE_LEAVES
from hanse_fabric.tensors.digest import leaf_count
from hanse_fabric.tensors.file import decode_tensors, encode_tensors
from hanse_fabric.tensors.layout import DTYPES, Entry, Layout, Rule
from hanse_learning.server.private_mean import PrivateMean
from hanse_learning.server.reduction import Array, Measured, Reweighed, chosen_weights, measured
from hanse_reduction.plan import ReductionPlan, Refusals
from hanse_reduction.rows import RowReader
from hanse_reduction.sources import Inputs

Totals = Mapping[str, Array]

MEASURED_INLINE = 8 << 10
"""Measurements up to this size travel in messages: every SHARD is told those of all groups."""


class MeasureWorker:
    """Measures leaves one after another. One per thread."""

    def __init__(self, plan: ReductionPlan, reduction: Measured, refusals: Refusals) -> None:
        self._reduction, self._refusals = reduction, refusals
        self._rows = RowReader(plan, refusals)

    @property
    def bytes_read(self) -> int:
        return self._rows.bytes_read

    def measure(self, index: int) -> Totals:
        """What the reduction measures of leaf `index`; not to be used when updates were refused."""
        found: dict[str, Array] = {}
        with self._rows.leaf(index) as pieces:
            for piece, rows in pieces:
                if piece.segment is not None and piece.segment.rule is Rule.PARAMETER and not self._refusals:
                    dtype = DTYPES[piece.segment.dtype]
                    _add(found, measured(self._reduction, [row.view(dtype) for row in rows]))
        return found


def _add(totals: dict[str, Array], more: Totals) -> None:
    for name, array in more.items():
        if name in totals:
            totals[name] += array
        else:
            totals[name] = np.array(array, np.float64)


@dataclass(slots=True)
class GroupSums:
    """Adds up what leaves measured in their order, whatever the order in which they come, group by group.

    Attributes:
        leaves: of the layout, from the first of a group on.
        groups: the sums, in order.
    """

    leaves: range
    _waiting: dict[int, Totals] = field(default_factory=dict)
    _done: int = 0
    groups: list[dict[str, Array]] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def add(self, index: int, found: Totals) -> None:
        """Count leaf `index`."""
        with self._lock:
            self._waiting[index] = found
            while (at := self.leaves.start + self._done) in self._waiting:
                if self._done % MEASURE_LEAVES == 0:
                    self.groups.append({})
                _add(self.groups[-1], self._waiting.pop(at))
                self._done += 1


def check_group(leaves: tuple[int, int] | None, plan: ReductionPlan) -> range:
    """The leaves of a MEASURE job.

    Raises:
        HanseError: INVALID_INPUT when they are not one group of the layout.
    """
    count = leaf_count(plan.layout.size)
    first, last = leaves or (0, 0)
    if not 0 <= first < count or first % MEASURE_LEAVES or last != min(first + MEASURE_LEAVES, count):
        raise invalid("leaves", leaves, f"{MEASURE_LEAVES} leaves of the model's {count}, from a multiple of that on")
    return range(first, last)


def reweighed(plan: ReductionPlan, groups: Iterable[Totals]) -> ReductionPlan:
    """The plan with the weights that its reduction chooses, from what was measured (nothing where it measures nothing).

    Buffers have the weights of before, of those updates whose new weight is not 0.
    """
    reduction = plan.strategy.reduction
    if not isinstance(reduction, Reweighed):
        return plan
    totals: dict[str, Array] = {}
    for group in groups:
        _add(totals, group)
    weights = chosen_weights(reduction, totals, plan.weights, plan.info)
    clip = reduction.next_clip(totals) if isinstance(reduction, PrivateMean) else None
    return replace(plan, weights=weights, counted=counted_of(weights), next_clip=clip)


def counted_of(weights: Array) -> tuple[int, ...]:
    """The rows that have a weight; all of them, should none have one."""
    return tuple(np.flatnonzero(weights).tolist()) or tuple(range(len(weights)))


def encode_totals(found: Totals) -> bytes:
    """A tensor file of what was measured."""
    layout = Layout.of(Entry(name, "F64", array.shape) for name, array in found.items())
    return encode_tensors(layout, dict(found))


def read_totals(refs: tuple[ObjectRef, ...], inputs: Inputs, groups: int) -> Iterator[Totals]:
    """What MEASURE jobs found, in the order of their leaves, read one after another: Gram matrices of many are large.

    Raises:
        HanseError: INVALID_INPUT when it is not that of all `groups`; TAMPERED, NOT_FOUND.
    """
    if len(refs) != groups:
        raise invalid("measured", len(refs), f"what was measured of all {groups} groups of leaves")
    for ref in refs:
        yield decode_tensors(inputs.open(ref).whole())[1]
