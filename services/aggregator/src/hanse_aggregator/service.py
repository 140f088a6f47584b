"""The aggregator on the bus: takes jobs from the queue, fetches small updates, answers with what was reduced.

A job is acknowledged after its answer is stored, so the job of a dead replica is done again by another; a job whose
answer is there already is not repeated. Reductions of stored updates pass one at a time; small ones do not wait.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator, Mapping

from hanse_aggregator.doors import AggregatorDoors
from hanse_aggregator.exchange import hold_session
from hanse_fabric import telemetry
from hanse_fabric.bus.port import Bus
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ExchangeJob, JobKind, ObjectRef, Reduced, ReduceJob, StudyJob
from hanse_fabric.queue import QueueWorker, stream_of
from hanse_fabric.subjects import JOB, MASKS, REDUCED, UPDATE, Subject
from hanse_fabric.telemetry import catalogue
from hanse_reduction.engine import Engine
from hanse_reduction.tallies import mask_refs, tally_ref

log = logging.getLogger(__name__)

AnyJob = ReduceJob | StudyJob | ExchangeJob

_LARGE_STUDY_BYTES = 64 << 20
"""Studies' jobs that read more than this pass one at a time, as reductions of stored updates do."""

_FETCHES = 64
"""Updates asked of the bus at once."""


class Aggregator:
    """Works the queue of reductions.

    Args:
        jobs: reductions of stored updates done at once; further ones are not taken from the queue meanwhile.
        small: jobs of other kinds done at once.
        sessions: exchanges held at once.
    """

    def __init__(self, bus: Bus, engine: Engine, *, jobs: int = 1, small: int = 4, sessions: int = 64) -> None:
        self._bus, self._engine, self._clock = bus, engine, bus.clock
        self._sessions = asyncio.Semaphore(sessions)
        self._large, self._small = asyncio.Semaphore(jobs), asyncio.Semaphore(small)
        self._fetches = asyncio.Semaphore(_FETCHES)
        self._stop = threading.Event()
        self._doors = AggregatorDoors(bus)

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set; what is unfinished then goes back to the queue."""
        worker = QueueWorker(self._bus, JOB, read=_decode, slot=self._slot, answer=self._answer, span="reduce")
        doors = asyncio.create_task(self._doors.run(), name="doors")
        work = asyncio.create_task(worker.run(stopping, on_stop=self._stop.set), name="queue")
        try:
            await asyncio.wait({doors, work}, return_when=asyncio.FIRST_COMPLETED)
            for ended in (doors, work):
                if ended.done():
                    ended.result()
        finally:
            for task in (doors, work):
                task.cancel()
            await asyncio.gather(doors, work, return_exceptions=True)

    def _slot(self, asked: AnyJob) -> asyncio.Semaphore:
        if isinstance(asked, ExchangeJob):
            return self._sessions
        return self._large if _is_large(asked) else self._small

    async def _answer(self, job: AnyJob) -> None:
        subject = REDUCED.of(project=job.project, run=job.run, step=job.step, job=job.id)
        known, fetched, sums = await asyncio.gather(
            self._bus.last(stream_of(REDUCED), subject), self._fetch(job), self._fetch_sums(job)
        )
        if known is not None:
            return
        if isinstance(job, ExchangeJob):
            reduced = await hold_session(job, self._bus)
        else:
            began = self._clock.monotonic()
            reduced = await asyncio.to_thread(self._reduce, job, fetched, sums)
            reduced = reduced.model_copy(update={"seconds": self._clock.monotonic() - began})
        await self._bus.publish(
            subject, reduced.encode(), headers=telemetry.inject(), message_id=f"reduced-{job.run}-{job.step}-{job.id}"
        )
        if not isinstance(job, ExchangeJob):
            _count(job, reduced)

    def _reduce(self, job: ReduceJob | StudyJob, fetched: dict[str, bytes], sums: dict[str, bytes]) -> Reduced:
        try:
            if isinstance(job, StudyJob):
                from hanse_reduction.study import run_study  # so that an aggregator without studies stays small

                return run_study(job, self._engine.store, fetched, sums)
            return self._engine.run(job, fetched, sums=sums, stop=self._stop)
        except HanseError:
            raise
        except Exception as defect:
            # The run must hear of our own defect; another attempt would meet it again.
            log.exception("reduction %s of run %s failed by a defect", job.id, job.run)
            return Reduced(
                job=job.id, project=job.project, run=job.run, step=job.step,
                error=f"a defect in the aggregator: {type(defect).__name__}: {defect}",
            )  # fmt: skip

    async def _fetch(self, job: AnyJob) -> dict[str, bytes]:
        """The updates that travel on the bus, by participant; those that are not there are left out."""
        if isinstance(job, ExchangeJob):
            return {}
        if isinstance(job, ReduceJob) and job.kind in (JobKind.CLOSE, JobKind.TALLY):
            return {}
        refs = {update.participant: update.ref for update in job.updates}
        found = await self._last({name: (UPDATE, _update_subject(job, name, ref)) for name, ref in _on_bus(refs)})
        return {name: data for name, data in found if data is not None}

    async def _fetch_sums(self, job: AnyJob) -> dict[str, bytes]:
        """The tallies, and the sums of masks, that travel on the bus, by digest; what is not there is left out."""
        if isinstance(job, ExchangeJob) or (ring := job.sum) is None:
            return {}
        tallies = {update.participant: tally_ref(job, update) for update in job.updates}
        wanted = {ref.digest: (UPDATE, _update_subject(job, name, ref)) for name, ref in _on_bus(tallies)}
        for _, ref in _on_bus(mask_refs(ring)):
            tokens = {"project": job.project, "run": job.run, "session": ring.session, "digest": ref.digest}
            wanted[ref.digest] = (MASKS, MASKS.of(**tokens))
        return {digest: data for digest, data in await self._last(wanted) if data is not None}

    async def _last(self, wanted: Mapping[str, tuple[Subject, str]]) -> list[tuple[str, bytes | None]]:
        """The newest message of each row's subject, by name."""

        async def fetch(name: str, row: Subject, subject: str) -> tuple[str, bytes | None]:
            if row is UPDATE and (fresh := self._doors.fresh.take(subject)) is not None:
                return name, fresh
            async with self._fetches:
                record = await self._bus.last(stream_of(row), subject)
            return name, None if record is None else record.data

        return await asyncio.gather(*(fetch(name, *where) for name, where in wanted.items()))


def _update_subject(job: ReduceJob | StudyJob, participant: str, ref: ObjectRef) -> str:
    return UPDATE.of(project=job.project, run=job.run, participant=participant, digest=ref.digest)


def _on_bus(refs: Mapping[str, ObjectRef | None]) -> Iterator[tuple[str, ObjectRef]]:
    """Those that are neither inline nor in the store."""
    for name, ref in refs.items():
        if ref is not None and ref.key is None and ref.inline is None:
            yield name, ref


def _decode(data: bytes) -> AnyJob:
    """A job of any kind; where it is none, the error is that of a reduction."""
    try:
        return ReduceJob.decode(data)
    except HanseError as error:
        if error.code is not ErrorCode.UNKNOWN_SCHEMA:
            raise
        for kind in (StudyJob, ExchangeJob):
            try:
                return kind.decode(data)
            except HanseError as other:
                if other.code is not ErrorCode.UNKNOWN_SCHEMA:
                    raise
        raise


def _count(job: ReduceJob | StudyJob, reduced: Reduced) -> None:
    kind = "study" if isinstance(job, StudyJob) else job.kind.value
    catalogue.JOBS.add(kind=kind)
    catalogue.JOB_SECONDS.observe(reduced.seconds, kind=kind)
    catalogue.REDUCED_BYTES.add(reduced.bytes_read)
    for refusal in reduced.refused:
        catalogue.REFUSED_UPDATES.add(code=refusal.code)
        log.warning("run %s: update of %s is refused: %s", job.run, refusal.participant, refusal.reason)
    log.debug("reduction %s of run %s took %.3f s", job.id, job.run, reduced.seconds)


def _is_large(job: ReduceJob | StudyJob) -> bool:
    if isinstance(job, StudyJob):
        refs = (*(update.ref for update in job.updates), *job.inputs.values())
        return sum(ref.size for ref in refs) > _LARGE_STUDY_BYTES
    if job.kind in (JobKind.ENCODE, JobKind.DELTA):
        return job.model is not None and job.model.key is not None
    return job.kind in (JobKind.WHOLE, JobKind.MEASURE, JobKind.SHARD) and any(
        update.ref.key is not None for update in job.updates
    )
