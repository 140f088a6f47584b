"""Reduction jobs of one run: submitted, found again after a crash, and their outcomes awaited.

A small reduction is one WHOLE job. A large one is OPEN, then SHARDs of whole leaves for any number of aggregators, then
CLOSE. A job's id says everything about it, so a job whose outcome is on the bus already is never asked for again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass

from hanse_coordinator.workflow.failures import RunFailure
from hanse_coordinator.workflow.waiting import first_of
from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import JobKind, Reduced, ReduceJob, UpdateInput
from hanse_fabric.subjects import JOB, REDUCED, Stream
from hanse_fabric.telemetry import inject
from hanse_fabric.tensors.digest import leaf_count

_LOG = logging.getLogger(__name__)
_STREAM: Stream = REDUCED.stream or Stream("")


@dataclass(frozen=True, slots=True)
class Limits:
    """How reductions are cut and how long they may take.

    Attributes:
        whole_bytes: models up to this size (bytes) are reduced by one job.
        shard_leaves: leaves (8 MiB each) of one shard job.
        timeout: seconds until an unanswered job is offered again.
        tries: how often a job is offered before the run fails.
    """

    whole_bytes: int = 64 << 20
    shard_leaves: int = 8
    timeout: float = 600.0
    tries: int = 3


class Reductions:
    """The jobs of one run and their outcomes."""

    def __init__(self, bus: Bus, clock: Clock, *, project: str, run: str, limits: Limits) -> None:
        self._bus, self._clock, self._project, self._run, self._limits = bus, clock, project, run, limits
        self._waiting: dict[str, asyncio.Future[Reduced]] = {}
        self.recovering = False
        """Set after a restart, until the first outcome: jobs of before may have been answered already."""

    async def follow(self) -> None:
        """Receive outcomes until cancelled."""
        pattern = REDUCED.wildcard(project=self._project, run=self._run)
        async with self._bus.follow(_STREAM, pattern) as records:
            async for record in records:
                future = self._waiting.get(REDUCED.parse(record.subject)["job"])
                if future is not None:
                    self._settle(future, record.data)

    async def reduce(self, job: ReduceJob) -> Reduced:
        """The outcome of a reduction, whose `job` is of kind WHOLE: one job, or several for a large model.

        Raises:
            RunFailure: TIMEOUT when no aggregator answers; INTERNAL when the reduction cannot be done.
        """
        size = job.updates[0].ref.size
        if size <= self._limits.whole_bytes:
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
        future: asyncio.Future[Reduced] = asyncio.get_running_loop().create_future()
        self._waiting[job.id] = future
        try:
            return await self._submit(job, future)
        finally:
            del self._waiting[job.id]

    async def _submit(self, job: ReduceJob, future: asyncio.Future[Reduced]) -> Reduced:
        tokens = {"project": job.project, "run": job.run, "step": job.step, "job": job.id}
        data = job.encode()
        for attempt in range(1, self._limits.tries + 1):
            if self.recovering or attempt > 1:
                record = await self._bus.last(_STREAM, REDUCED.of(**tokens))
                if record is not None:
                    self._settle(future, record.data)
            if not future.done():
                await self._bus.publish(
                    JOB.of(**tokens), data, headers=inject(), message_id=f"{job.run}/{job.id}/{attempt}"
                )
                await first_of(asyncio.wait([future]), self._clock.sleep(self._limits.timeout))
            if future.done():
                return _succeeded(future.result())
            _LOG.warning("job %s of run %s has no answer after %s s", job.id, job.run, self._limits.timeout)
        raise RunFailure(
            ErrorCode.TIMEOUT,
            f"reduction {job.id}: no aggregator answered in {self._limits.tries} times {self._limits.timeout:g} s",
            hint="see that aggregators are running and ready",
        )

    def _settle(self, future: asyncio.Future[Reduced], data: bytes) -> None:
        if future.done():
            return
        try:
            future.set_result(Reduced.decode(data))
        except HanseError as error:
            future.set_exception(RunFailure(error.code, f"reduction: {error.message}", hint=error.hint))


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
