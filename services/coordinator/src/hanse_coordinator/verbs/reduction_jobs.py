"""Reduction jobs of one run.

A small reduction is one WHOLE job. A large one is OPEN, then SHARDs of whole leaves for any number of aggregators, then
CLOSE; with MEASUREs before the SHARDs where the strategy looks at all updates before it combines any.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

from hanse_coordinator.verbs.requests import Patience, Requests
from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import JobKind, Reduced, ReduceJob, StudyJob
from hanse_fabric.messages.reduction_jobs import MEASURE_LEAVES, MEASURED
from hanse_fabric.subjects import JOB, REDUCED
from hanse_fabric.tensors.digest import leaf_count
from hanse_learning.server.config import check_strategy
from hanse_workflows.failures import RunFailure


@dataclass(frozen=True, slots=True)
class ReductionLimits:
    """How reductions are cut and how long they may take.

    Attributes:
        whole_bytes: models up to this size (bytes) are reduced by one job.
        shard_leaves: leaves (8 MiB each) of one shard job.
    """

    whole_bytes: int = 64 << 20
    shard_leaves: int = 8
    patience: Patience = field(default_factory=Patience)


class ReductionJobs:
    """The jobs of one run and their outcomes."""

    def __init__(self, bus: Bus, clock: Clock, *, project: str, run: str, limits: ReductionLimits) -> None:
        self._limits = limits
        self.requests = Requests(
            bus, clock, project=project, run=run, questions=JOB, answers=REDUCED, answer=Reduced, named_by="job",
            who="aggregators", patience=limits.patience,
        )  # fmt: skip

    async def outcome(self, job: ReduceJob | StudyJob) -> Reduced:
        """The outcome of a study's joint computation, or of a reduction, whose `job` is of kind WHOLE (one job, or
        several for a large model) or TALLY.

        Raises:
            RunFailure: TIMEOUT when no aggregator answers; INTERNAL when the reduction cannot be done; what a study's
                step has found wrong.
        """
        if isinstance(job, StudyJob):
            return await self._outcome(job)
        size = (job.model or job.updates[0].ref).size
        if job.kind in (JobKind.TALLY, JobKind.ENCODE, JobKind.DELTA) or size <= self._limits.whole_bytes:
            return await self._outcome(job)
        opened = await self._outcome(job.model_copy(update={"id": f"{job.id}-open", "kind": JobKind.OPEN}))
        if opened.refused:
            return opened
        job = job.model_copy(update={"uploads": opened.uploads})
        leaves = leaf_count(size)
        adopts = job.model is None and not job.from_zero
        if not adopts and job.sum is None and check_strategy(job.strategy).reduction.measures():
            outcomes = await self._shared(job, JobKind.MEASURE, shards_of(leaves, MEASURE_LEAVES))
            if refused := _refused(outcomes):
                return refused
            job = job.model_copy(update={"measured": tuple(outcome.outputs[MEASURED] for outcome in outcomes)})
        outcomes = await self._shared(job, JobKind.SHARD, shards_of(leaves, self._limits.shard_leaves))
        if refused := _refused(outcomes):
            return refused
        parts = tuple(
            sorted(
                (part for outcome in outcomes for part in outcome.parts), key=lambda part: (part.output, part.number)
            )
        )
        closing = {"id": f"{job.id}-close", "kind": JobKind.CLOSE, "parts": parts}
        closed = await self._outcome(job.model_copy(update=closing))
        devices = sorted({outcome.device for outcome in outcomes if outcome.device})
        return closed.model_copy(
            update={
                "clip": outcomes[0].clip,  # each shard says the same
                "device": ", ".join(devices) or None,
                "warning": next((outcome.warning for outcome in outcomes if outcome.warning), None),
            }
        )

    async def _shared(self, job: ReduceJob, kind: JobKind, cuts: Iterator[tuple[int, int]]) -> list[Reduced]:
        """The outcomes of a job for each range of leaves, in their order."""
        jobs = [
            job.model_copy(update={"id": f"{job.id}-{kind}-{first}", "kind": kind, "leaves": (first, end)})
            for first, end in cuts
        ]
        return await asyncio.gather(*(self._outcome(each) for each in jobs))

    async def _outcome(self, job: ReduceJob | StudyJob) -> Reduced:
        return _succeeded(await self.requests.outcome(job.id, job, step=job.step))


def _succeeded(reduced: Reduced) -> Reduced:
    if reduced.error and reduced.code:
        raise RunFailure(ErrorCode.of(reduced.code), reduced.error)
    if reduced.error:
        raise RunFailure(ErrorCode.INTERNAL, f"reduction {reduced.job}: {reduced.error}")
    return reduced


def _refused(outcomes: list[Reduced]) -> Reduced | None:
    """All refusals together, if there are any."""
    refused = {refusal.participant: refusal for outcome in outcomes for refusal in outcome.refused}
    if not refused:
        return None
    return outcomes[0].model_copy(update={"refused": tuple(refused[name] for name in sorted(refused))})


def shards_of(leaves: int, each: int) -> Iterator[tuple[int, int]]:
    """(first, last + 1) leaf of each shard. Pure."""
    for first in range(0, leaves, each):
        yield first, min(first + each, leaves)
