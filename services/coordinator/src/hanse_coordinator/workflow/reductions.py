"""Reduction jobs of one run.

A small reduction is one WHOLE job. A large one is OPEN, then SHARDs of whole leaves for any number of aggregators, then
CLOSE.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

from hanse_coordinator.workflow.errands import Errands, Patience
from hanse_coordinator.workflow.failures import RunFailure
from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import JobKind, Reduced, ReduceJob, UpdateInput
from hanse_fabric.subjects import JOB, REDUCED
from hanse_fabric.tensors.digest import leaf_count


@dataclass(frozen=True, slots=True)
class Limits:
    """How reductions are cut and how long they may take.

    Attributes:
        whole_bytes: models up to this size (bytes) are reduced by one job.
        shard_leaves: leaves (8 MiB each) of one shard job.
    """

    whole_bytes: int = 64 << 20
    shard_leaves: int = 8
    patience: Patience = field(default_factory=Patience)


class Reductions:
    """The jobs of one run and their outcomes."""

    def __init__(self, bus: Bus, clock: Clock, *, project: str, run: str, limits: Limits) -> None:
        self._limits = limits
        self.errands = Errands(
            bus, clock, project=project, run=run, asked=JOB, answered=REDUCED, answer=Reduced, named_by="job",
            who="aggregators", patience=limits.patience,
        )  # fmt: skip

    async def reduce(self, job: ReduceJob) -> Reduced:
        """The outcome of a reduction, whose `job` is of kind WHOLE (one job, or several for a large model) or TALLY.

        Raises:
            RunFailure: TIMEOUT when no aggregator answers; INTERNAL when the reduction cannot be done.
        """
        size = (job.model or job.updates[0].ref).size
        if job.kind is JobKind.TALLY or size <= self._limits.whole_bytes:
            return await self._outcome(job)
        opened = await self._outcome(job.model_copy(update={"id": f"{job.id}-open", "kind": JobKind.OPEN}))
        if opened.refused:
            return opened
        common = {"uploads": opened.uploads}
        shards = [
            job.model_copy(
                update={**common, "id": f"{job.id}-shard-{first}", "kind": JobKind.SHARD, "leaves": (first, end)}
            )
            for first, end in shards_of(leaf_count(size), self._limits.shard_leaves)
        ]
        outcomes = await asyncio.gather(*(self._outcome(shard) for shard in shards))
        refused = {refusal.participant: refusal for outcome in outcomes for refusal in outcome.refused}
        if refused:
            return outcomes[0].model_copy(update={"refused": tuple(refused[name] for name in sorted(refused))})
        parts = tuple(
            sorted(
                (part for outcome in outcomes for part in outcome.parts), key=lambda part: (part.output, part.number)
            )
        )
        closing = {**common, "id": f"{job.id}-close", "kind": JobKind.CLOSE, "parts": parts}
        return await self._outcome(job.model_copy(update=closing))

    async def _outcome(self, job: ReduceJob) -> Reduced:
        return _succeeded(await self.errands.outcome(job.id, job, step=job.step))


def _succeeded(reduced: Reduced) -> Reduced:
    if reduced.error:
        raise RunFailure(ErrorCode.INTERNAL, f"reduction {reduced.job}: {reduced.error}")
    return reduced


def shards_of(leaves: int, each: int) -> Iterator[tuple[int, int]]:
    """(first, last + 1) leaf of each shard. Pure."""
    for first in range(0, leaves, each):
        yield first, min(first + each, leaves)


def without(updates: tuple[UpdateInput, ...], refused: set[str]) -> tuple[UpdateInput, ...]:
    """The updates of those who were not refused, in the same order. Pure."""
    return tuple(update for update in updates if update.participant not in refused)
