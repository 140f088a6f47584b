"""What a reduction knows before the first leaf: layout, strategy, weights, inputs; and who is refused at sight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock

import numpy as np

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages import JobKind, ReduceJob, Refusal, UpdateInput
from hanse_fabric.tensors.layout import Layout
from hanse_learning.codecs.chain import build_chain
from hanse_learning.server.reduction import Array, Measured, measures, normalize
from hanse_learning.server.strategy import Strategy, build_strategy, check_enough
from hanse_privacy.ring.files import ring_layout
from hanse_reduction.checks import check_order, check_precision, check_private, within
from hanse_reduction.encoded import EncodedInput, open_encoded
from hanse_reduction.headers import common_header, compare_header, read_header
from hanse_reduction.ring_inputs import check_sum, open_masked_sum
from hanse_reduction.ring_plan import MaskedSum
from hanse_reduction.sources import Input, Inputs

MODEL = "model"

Each = Callable[[Callable[[UpdateInput], None], tuple[UpdateInput, ...]], None]
"""Calls a function for every update, several at once where that helps."""


@dataclass(slots=True)
class Refusals:
    """The updates that must be left out, by participant; filled from several threads."""

    by_participant: dict[str, Refusal] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def add(self, participant: str, error: HanseError) -> None:
        """Note why. That an update was tampered with outweighs what was found in its numbers."""
        with self._lock:
            if participant not in self.by_participant or error.code is ErrorCode.TAMPERED:
                self.by_participant[participant] = Refusal(
                    participant=participant, reason=str(error)[:500], code=error.code.code
                )

    def __bool__(self) -> bool:
        return bool(self.by_participant)

    def listed(self) -> tuple[Refusal, ...]:
        return tuple(self.by_participant[name] for name in sorted(self.by_participant))


@dataclass(frozen=True, slots=True)
class Row:
    """One participant's update."""

    participant: str
    data: Input | EncodedInput

    @property
    def as_it_is(self) -> Input:
        """The update where no codec is in between, as under masks."""
        assert isinstance(self.data, Input)  # noqa: S101 - `make_plan` refuses codecs there
        return self.data


@dataclass(frozen=True, slots=True)
class ReductionPlan:
    """A reduction's inputs.

    Attributes:
        header: the bytes that every object of the layout begins with.
        base: the model that the rows are differences to; None to adopt the only row, or to begin with zeros.
        adopts: whether the only row becomes the model.
        weights: (K,) float64, summing to 1, or what the strategy made of them.
        given: (K,) float64, the weights as they were given, summing to 1.
        info: by name, the numbers (K,) float64 that came with every update, and `weights`, as the job has them.
        counted: the rows whose buffers count.
        state: the optimizer's arrays by name; None where the initial value fills them.
        initial: the initial values by name.
        masked: how the rows become the change of the model, where they are masked; None: they are plain.
        next_clip: the clipping norm of the next round, where the strategy moves it.
    """

    layout: Layout
    header: bytes
    strategy: Strategy
    rows: tuple[Row, ...]
    weights: Array
    given: Array
    info: Mapping[str, Array]
    counted: tuple[int, ...]
    base: Input | None
    adopts: bool
    state: dict[str, Input | None]
    initial: Mapping[str, float]
    round: int
    masked: MaskedSum | None = None
    next_clip: float | None = None

    @property
    def measured(self) -> Measured | None:
        """The reduction, where it is to measure the rows before it combines them; that of masked sums is none."""
        reduction = self.strategy.reduction
        return reduction if not self.adopts and measures(reduction) else None

    @property
    def buffer_weights(self) -> Array:
        """The given weights of the rows whose buffers count, summing to 1."""
        if len(self.counted) == len(self.rows):
            return self.given
        return normalize(self.given[list(self.counted)].tolist())

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the objects that are made, the model first."""
        return (MODEL, *self.state)


def make_plan(job: ReduceJob, inputs: Inputs, refusals: Refusals, each: Each) -> ReductionPlan | None:
    """Read headers and sizes. Updates that are refused at sight go into `refusals`.

    A SHARD trusts that its OPEN has looked at every header; it compares them again where its leaves hold them.

    Returns:
        The plan, or None when there is nothing to go on with (refusals say why).

    Raises:
        HanseError: when the job itself cannot be done: its model, its state, or its strategy.
    """
    check_order(job)
    strategy = within(build_strategy(job.strategy), job)
    if job.sum is not None:
        check_sum(job, job.sum, strategy)
        if job.codec is not None:
            raise invalid("codec", job.codec, "absent in a masked sum, whose summands are ring elements")
    chain = None if job.codec is None else build_chain(job.codec)
    opened: dict[str, Row] = {}

    def open_row(update: UpdateInput) -> None:
        try:
            data = inputs.update(update)
            if chain is not None and rows_layout is not None:
                data.check_size()
                opened[update.participant] = Row(update.participant, open_encoded(data, rows_layout, chain))
                return
            if job.kind is not JobKind.SHARD:
                data.check_size()
                if rows_layout is not None:
                    compare_header(data, rows_layout.header, rows_layout)
            elif rows_layout is not None and data.ref.size != rows_layout.size:
                raise HanseError(ErrorCode.INVALID_INPUT, f"update: {data.ref.size} bytes, not {rows_layout.size}")
            opened[update.participant] = Row(update.participant, data)
        except HanseError as error:
            if error.code in (ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT):
                raise
            refusals.add(update.participant, error)

    base: Input | None = None
    rows_layout: Layout | None = None
    if job.model is not None:
        base = inputs.open(job.model)
        header, layout = read_header(base)
        check_precision(strategy, layout)
        rows_layout = layout if job.sum is None else ring_layout(layout, job.sum.plan)
        each(open_row, job.updates)
    else:
        if not job.from_zero and len(job.updates) != 1:
            raise invalid("updates", len(job.updates), "exactly one, when it is adopted as the model")
        each(open_row, job.updates)
        found = common_header({name: row.as_it_is for name, row in opened.items()}, refusals.add)
        if found is None:
            return None
        header, layout = found
        opened = {name: row for name, row in opened.items() if name not in refusals.by_participant}
    check_private(strategy, layout)
    masked = None if job.sum is None else open_masked_sum(job, job.sum, layout, inputs, refusals.add)
    if refusals and job.kind is JobKind.OPEN:
        return None
    present = [update for update in job.updates if update.participant in opened]
    if not present:
        return None
    rows = tuple(opened[update.participant] for update in present)
    weights = normalize([update.weight for update in present])
    adopts = base is None and not job.from_zero
    if not adopts:
        check_enough(strategy, len(rows))
    initial = {} if adopts else strategy.optimizer.state
    return ReductionPlan(
        layout=layout,
        header=header,
        strategy=strategy,
        rows=rows,
        weights=weights,
        given=weights,
        info=_info(present),
        counted=tuple(range(len(rows))),
        base=base,
        adopts=adopts,
        state={name: _open_state(name, job, inputs, header, layout) for name in initial},
        initial=initial,
        round=job.round,
        masked=masked,
    )


def _info(updates: list[UpdateInput]) -> dict[str, Array]:
    """By name, the numbers that all updates carry."""
    infos = [update.info or {} for update in updates]
    names = set(infos[0]).intersection(*infos[1:])
    found = {name: np.array([info[name] for info in infos], np.float64) for name in names}
    return found | {"weights": np.array([update.weight for update in updates], np.float64)}


def _open_state(name: str, job: ReduceJob, inputs: Inputs, header: bytes, layout: Layout) -> Input | None:
    ref = job.state.get(name)
    if ref is None:
        return None
    state = inputs.open(ref)
    if ref.size != layout.size or state.read(0, len(header)) != header:
        raise HanseError(ErrorCode.INVALID_INPUT, f"state {name}: its layout is not the model's")
    return state
