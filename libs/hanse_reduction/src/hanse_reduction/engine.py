"""Does a ReduceJob: walks the leaves in a few threads, so that reading, reducing and writing overlap.

The outcome depends on the job alone: the same inputs give the same bytes, whatever the number of threads, and however
the leaves were shared out over jobs. Peak memory: threads x (ROWS_BUDGET + LEAF_BYTES x outputs).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import assert_never

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages import JobKind, ObjectRef, Part, Reduced, ReduceJob, UpdateInput
from hanse_fabric.messages.reduction_jobs import DELTA, ENCODED, MEASURE_LEAVES, MEASURED, MOST_WARNING, Tally
from hanse_fabric.store.port import ObjectStore
from hanse_fabric.tensors.digest import leaf_count
from hanse_learning.server.reduction import Measured
from hanse_learning.server.strategy import build_strategy
from hanse_reduction.arithmetic import Arithmetic, Processor
from hanse_reduction.checks import blamed, check_order, check_plugins
from hanse_reduction.crew import Crew
from hanse_reduction.encode_model import delta_of_model, encoded_model
from hanse_reduction.leaf import LeafWorker
from hanse_reduction.measure import (
    MEASURED_INLINE,
    GroupSums,
    MeasureWorker,
    Totals,
    check_group,
    encode_totals,
    read_totals,
    reweighed,
)
from hanse_reduction.outputs import LeafMaker
from hanse_reduction.plan import ReductionPlan, Refusals, make_plan
from hanse_reduction.ring_inputs import check_sum
from hanse_reduction.ring_leaf import RingWorker
from hanse_reduction.sources import Inputs
from hanse_reduction.tallies import sum_of_tallies
from hanse_reduction.uploads import Uploads

READERS = 8
"""Updates whose size and header are looked at together."""

RING_BATCH = 8
"""Leaves of a masked sum that one worker makes one after another."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Reduces. Methods block; calls from several threads are independent.

    Attributes:
        store: where large objects lie; None where all jobs are small.
        threads: leaves worked on at once.
        arithmetic: what columns are combined on.
    """

    store: ObjectStore | None
    threads: int = 2
    arithmetic: Arithmetic = field(default_factory=Processor)

    def run(
        self,
        job: ReduceJob,
        fetched: Mapping[str, bytes] | None = None,
        sums: Mapping[str, bytes] | None = None,
        *,
        stop: threading.Event | None = None,
    ) -> Reduced:
        """Do the job.

        Args:
            fetched, sums: of `Inputs`.
            stop: gives up (CANCELLED) soon after it is set.

        Returns:
            What the job made; or the updates to leave out; or, in `error`, why it can never succeed.

        Raises:
            HanseError: UNAVAILABLE or TIMEOUT (worth another try), CANCELLED.
        """
        run = _Run(self, job, Inputs(self.store, fetched or {}, sums or {}), stop or threading.Event())
        try:
            reduced = run.reduced()
        except HanseError as error:
            if error.code in (ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT, ErrorCode.CANCELLED):
                raise
            foreign = job.strategy_digest or job.optimizer_digest or job.codec_digests
            reduced = run.answer(error=str(error), code=error.code.code if foreign else None)
        except Exception as error:
            if (reason := blamed(job, error)) is None:
                raise
            reduced = run.answer(error=f"{reason}: {error}", code=ErrorCode.INVALID_INPUT.code)
        return reduced.model_copy(update={"bytes_read": run.bytes_read})


@dataclass(slots=True)
class _Run:
    engine: Engine
    job: ReduceJob
    inputs: Inputs
    stop: threading.Event
    refusals: Refusals = field(default_factory=Refusals)
    bytes_read: int = 0
    tally: Tally | None = None
    clip: float | None = None
    device: str | None = None

    @property
    def outputs(self) -> Uploads:
        return Uploads(self.job, self.engine.store)

    @property
    def crew(self) -> Crew:
        return Crew(self.engine.threads, self.stop)

    def answer(
        self,
        *,
        outputs: dict[str, ObjectRef] | None = None,
        uploads: dict[str, str] | None = None,
        parts: tuple[Part, ...] = (),
        error: str = "",
        code: str | None = None,
    ) -> Reduced:
        job = self.job
        return Reduced(
            job=job.id, project=job.project, run=job.run, step=job.step, outputs=outputs or {},
            uploads=uploads or {}, parts=parts, refused=() if error else self.refusals.listed(), error=error,
            tally=None if error else self.tally, clip=None if error else self.clip, device=self.device,
            warning=self.engine.arithmetic.warning[:MOST_WARNING] or None, code=code,
        )  # fmt: skip

    def reduced(self) -> Reduced:
        check_plugins(self.job)
        if self.job.kind is JobKind.CLOSE:
            return self._close()
        if self.job.kind is JobKind.TALLY:
            return self._tallied()
        if self.job.kind is JobKind.ENCODE:
            return self.answer(outputs={ENCODED: encoded_model(self.job, self.inputs, self.outputs)})
        if self.job.kind is JobKind.DELTA:
            return self.answer(outputs={DELTA: delta_of_model(self.job, self.inputs, self.outputs)})
        plan = make_plan(self.job, self.inputs, self.refusals, self._each)
        if plan is None:
            return self.answer()
        if plan.masked is not None:
            self.tally = plan.masked.tally
        if self.job.kind is JobKind.OPEN:
            return self.answer(uploads=self.outputs.open(plan.outputs))
        if self.job.kind is JobKind.MEASURE:
            return self._measured(plan)
        plan = self._reweighed(plan)
        self.clip = plan.next_clip
        if self.refusals and plan.measured is not None:
            return self.answer()
        if self.job.kind is JobKind.SHARD:
            return self._shard(plan)
        if self.job.kind is JobKind.WHOLE:
            return self._single(plan) if leaf_count(plan.layout.size) == 1 else self._whole(plan)
        assert_never(self.job.kind)

    def _each(self, look: Callable[[UpdateInput], None], updates: tuple[UpdateInput, ...]) -> None:
        """Look at updates: those in the store, which take a round trip or two each, several at once."""
        stored = [update for update in updates if update.ref.key is not None]
        for update in updates:
            if update.ref.key is None:
                look(update)
        if stored:
            with ThreadPoolExecutor(min(READERS, len(stored)), "header") as pool:
                list(pool.map(look, stored))

    def _single(self, plan: ReductionPlan) -> Reduced:
        """A reduction of one leaf, whose outputs are whole objects."""
        worker = self._worker(plan)
        made = dict(worker.reduce(range(1)))
        self.bytes_read += worker.bytes_read
        if self.refusals:
            return self.answer()
        return self.answer(outputs={name: self.outputs.put(name, leaf) for name, leaf in made[0].items()})

    def _whole(self, plan: ReductionPlan) -> Reduced:
        uploads = self.outputs.open(plan.outputs)
        try:
            parts = self._walk(plan, range(leaf_count(plan.layout.size)), uploads)
        except HanseError:
            self.outputs.abort(uploads)
            raise
        if self.refusals:
            self.outputs.abort(uploads)
            return self.answer()
        return self.answer(outputs=self.outputs.compose(parts, uploads, plan.layout.size))

    def _shard(self, plan: ReductionPlan) -> Reduced:
        first, last = self.job.leaves or (0, 0)
        count = leaf_count(plan.layout.size)
        if not 0 <= first < last <= count:
            raise invalid("leaves", self.job.leaves, f"a range within the model's {count} leaves")
        if missing := [name for name in plan.outputs if name not in self.job.uploads]:
            raise invalid("uploads", sorted(self.job.uploads), "an upload for each of " + ", ".join(missing))
        parts = self._walk(plan, range(first, last), self.job.uploads)
        return self.answer(parts=() if self.refusals else parts)

    def _tallied(self) -> Reduced:
        """The sum of the tallies alone: of an evaluation, or at the end of a masked reduction in shards."""
        if (ring := self.job.sum) is None:
            raise invalid("sum", None, "how the tallies are masked")
        check_order(self.job)
        check_sum(self.job, ring, build_strategy(self.job.strategy))
        self.tally = sum_of_tallies(self.job, ring, self.inputs, self.refusals.add)
        return self.answer()

    def _close(self) -> Reduced:
        if self.job.sum is not None:
            answer = self._tallied()
            if answer.refused:
                return answer
        size = (self.job.model or self.job.updates[0].ref).size
        outputs = self.outputs.compose(self.job.parts, self.job.uploads, size)
        self.outputs.forget(self.job.measured or ())
        return self.answer(outputs=outputs)

    def _measure(self, plan: ReductionPlan, reduction: Measured, leaves: range) -> Sequence[Totals]:
        """What the reduction measures of `leaves`, by groups; not to be used when updates were refused."""
        sums = GroupSums(leaves)
        self.bytes_read += self.crew.work(
            leaves, partial(MeasureWorker, plan, reduction, self.refusals),
            lambda worker, index: sums.add(index, worker.measure(index)),
        )  # fmt: skip
        return sums.groups

    def _measured(self, plan: ReductionPlan) -> Reduced:
        """A MEASURE job."""
        reduction = plan.measured
        if reduction is None:
            raise invalid("kind", self.job.kind.value, "a strategy that measures plain updates")
        leaves = check_group(self.job.leaves, plan)
        groups = self._measure(plan, reduction, leaves)
        if self.refusals:
            return self.answer()
        name = f"{MEASURED}-{leaves.start}"
        return self.answer(
            outputs={MEASURED: self.outputs.put(name, encode_totals(groups[0]), inline=MEASURED_INLINE)}
        )  # fmt: skip

    def _reweighed(self, plan: ReductionPlan) -> ReductionPlan:
        """The plan with the weights that its strategy chooses. A WHOLE job measures by itself; a SHARD was told."""
        groups: Iterable[Totals] = ()
        if (reduction := plan.measured) is not None:
            count = leaf_count(plan.layout.size)
            if self.job.kind is JobKind.WHOLE:
                groups = self._measure(plan, reduction, range(count))
            else:
                groups = read_totals(self.job.measured or (), self.inputs, -(-count // MEASURE_LEAVES))
            # What was measured is of all updates, also of those that are refused meanwhile.
            if self.refusals:
                return plan
        return plan if plan.adopts else reweighed(plan, groups)

    def _worker(self, plan: ReductionPlan) -> LeafMaker:
        if plan.masked is not None:
            return RingWorker(plan, plan.masked, self.refusals)
        arithmetic = self.engine.arithmetic
        if not plan.adopts and arithmetic.takes(plan.strategy):
            self.device = arithmetic.label
        return LeafWorker(plan, self.refusals, arithmetic)

    def _batches(self, plan: ReductionPlan, leaves: range) -> list[range]:
        """The leaves that a worker goes through in one go. Of a plain sum, each by itself. Of a masked sum, adjacent
        ones: masked updates are laid out otherwise than the model, and their leaves are read twice where two batches
        meet."""
        each = 1 if plan.masked is None else min(RING_BATCH, -(-len(leaves) // self.engine.threads))
        return [leaves[at : at + each] for at in range(0, len(leaves), each)]

    def _walk(self, plan: ReductionPlan, leaves: range, uploads: Mapping[str, str]) -> tuple[Part, ...]:
        """Reduce `leaves` and store each as a part; parts sorted by output and number."""
        found: list[Part] = []

        def reduce(worker: LeafMaker, batch: range) -> None:
            for index, made in worker.reduce(batch):
                # A list's append is safe among threads.
                found.extend(self.outputs.put_part(name, uploads[name], index, leaf) for name, leaf in made.items())

        self.bytes_read += self.crew.work(self._batches(plan, leaves), partial(self._worker, plan), reduce)
        return tuple(sorted(found, key=lambda part: (part.output, part.number)))
