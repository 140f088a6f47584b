"""A hub in one process for the tests of workflows: participants, an aggregator and a registry that answer on the bus.

They are small and honest: a site trains by adding its seed's number, the aggregator takes the weighted mean of JSON
arrays. What they did is counted, so that a test can say that nothing was done twice.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from hanse_coordinator.records import Buckets, ParticipantRecord, RunRecord
from hanse_coordinator.runs.settings import WorkflowSettings
from hanse_coordinator.runs.supervisor import Supervisor
from hanse_fabric.bus.memory import MemoryBroker, MemoryBus
from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock, SystemClock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import (
    ExchangeJob,
    JobKind,
    ModelVersion,
    ObjectRef,
    Outcome,
    Presence,
    PublishModel,
    Reduced,
    ReduceJob,
    Refusal,
    RegistryReply,
    Result,
    RunEvent,
    StudyJob,
    Task,
    TaskKind,
)
from hanse_fabric.messages.reductions import MEASURED
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.subjects import (
    AUDIT,
    EVENT,
    JOB,
    PRESENCE,
    PUBLISH_MODEL,
    REDUCED,
    RESULT,
    TASK,
    UPDATE,
    Role,
)
from hanse_schemas.job import Job, check_job

PROJECT = "triage"
RUN = "run000000001"


def ref_of(data: bytes, *, inline: bool) -> ObjectRef:
    return ObjectRef(
        digest=hashlib.sha256(data).hexdigest(), size=len(data), inline=base64.b64encode(data) if inline else None
    )


def key_of(job: ReduceJob | StudyJob) -> str:
    """The step's key in a job's id, which has a fingerprint besides."""
    return re.sub(r"-[0-9a-f]{8}(?=-|$)", "", job.id)


def job_of(**changes: Any) -> Job:
    body: dict[str, Any] = {
        "rounds": 3,
        "model": {"name": "tiny"},
        "participants": {"minimum": 2, "deadline": 30.0, "patience": 30.0},
    }
    body["participants"] |= changes.pop("participants", {})
    return check_job(body | changes)


class Site:
    """A participant. `behave(task)` may return a Result's changes, or None to stay silent."""

    def __init__(self, hub: Hub, name: str) -> None:
        self.hub, self.name = hub, name
        self.key = SigningKey.create()
        self.done: Counter[tuple[str, str]] = Counter()
        self.behave: Callable[[Task], dict[str, Any] | None] = lambda _: {}
        self._bus: Bus = hub.bus
        self._answered: dict[str, Result] = {}

    async def enrol(self) -> None:
        self._bus = await self.hub.connect(Role.PARTICIPANT, self.name)
        now = self.hub.clock.now()
        record = ParticipantRecord(
            project=PROJECT, participant=self.name, public_key=base64.b64encode(self.key.public_bytes),
            bus_key="U", enrolled_at=now,
        )  # fmt: skip
        await self.hub.buckets.participants.create(record, project=PROJECT, participant=self.name)
        await self.appear()

    async def appear(self) -> None:
        presence = Presence(project=PROJECT, participant=self.name, version="0", sent_at=self.hub.clock.now())
        await self._bus.publish(PRESENCE.of(project=PROJECT, participant=self.name), presence.encode())

    async def run(self) -> None:
        async with self._bus.follow(TASK.stream, TASK.wildcard(project=PROJECT, participant=self.name)) as records:
            async for record in records:
                await self.receive(Task.decode(record.data))

    async def receive(self, task: Task) -> None:
        if task.id not in self._answered:
            changes = self.behave(task)
            if changes is None:
                return
            self.done[task.step, task.kind.value] += 1
            self._answered[task.id] = await self.work(task, changes)
        await self.send(self._answered[task.id])

    async def work(self, task: Task, changes: dict[str, Any]) -> Result:
        update = None
        if task.kind is not TaskKind.EVALUATE:
            update = ref_of(json.dumps([task.seed % 1000, 1]).encode(), inline=False)
            subject = UPDATE.of(project=PROJECT, run=task.run, participant=self.name, digest=update.digest)
            await self._bus.publish(subject, json.dumps([task.seed % 1000, 1]).encode())
        body: dict[str, Any] = {
            "task": task.id, "project": PROJECT, "run": task.run, "step": task.step, "participant": self.name,
            "outcome": Outcome.DONE, "update": update, "examples": 10, "metrics": {"accuracy": task.round / 10},
        } | changes  # fmt: skip
        return self.signed(Result(**body))

    def signed(self, result: Result) -> Result:
        signature = self.key.sign(result.canonical(without=frozenset({"signature"})))
        return Result.model_validate({**result.model_dump(), "signature": base64.b64encode(signature),
                                      "update": result.update})  # fmt: skip

    async def send(self, result: Result, *, step: str | None = None) -> None:
        subject = RESULT.of(project=PROJECT, run=result.run, step=step or result.step, participant=self.name)
        await self._bus.publish(subject, result.encode())


class Hub:
    """The bus, the store, the records, and who else is there."""

    def __init__(self, folder: Path, clock: Clock | None = None, *, bus: Bus | None = None) -> None:
        self.broker = MemoryBroker()
        self.bus: Bus = bus or MemoryBus(self.broker)
        self.clock = clock or SystemClock()
        self.buckets = Buckets.on(self.bus)
        self.store = DirectoryStore(folder)
        self.sites: dict[str, Site] = {}
        self.reduced: Counter[str] = Counter()
        self.kinds: list[JobKind] = []
        self.sessions: list[ExchangeJob] = []
        self.told: list[ObjectRef] = []
        self.refuse: dict[str, str] = {}
        self.published: dict[tuple[int, str], int] = {}

    async def connect(self, role: Role, participant: str = "") -> Bus:
        """A connection of another process. On a real server the tests put their own in its place."""
        return MemoryBus(self.broker)

    def supervisor(self, bus: Any = None, *, instance: str = "one", **settings: Any) -> Supervisor:
        bus = bus or MemoryBus(self.broker)
        return Supervisor(
            bus=bus, store=self.store, buckets=Buckets.on(bus), clock=self.clock,
            settings=WorkflowSettings(instance=instance, **({"lease_ttl": 0.3} | settings)),
        )  # fmt: skip

    async def submit(self, job: Job) -> None:
        now = self.clock.now()
        record = RunRecord(project=PROJECT, run=RUN, job=job, created_at=now, updated_at=now, created_by="key:test")
        await self.buckets.runs.create(record, project=PROJECT, run=RUN)

    async def want(self, wanted: str) -> None:
        await self.buckets.runs.change(lambda record: record.model_copy(update={"wanted": wanted}), **KEY)

    async def until(self, condition: Callable[[RunRecord], bool]) -> RunRecord:
        """The run's record as soon as it fulfils the condition."""
        async with asyncio.timeout(110), self.buckets.runs.watch(**KEY) as changes:
            async for change in changes:
                if change is not None and change.value is not None and condition(change.value):
                    return change.value
        raise AssertionError("the watch ended")

    async def ended(self) -> RunRecord:
        return await self.until(lambda record: record.state in ("completed", "failed", "cancelled"))

    async def events(self, *kinds: str) -> list[RunEvent]:
        records = await self.bus.snapshot(EVENT.stream, EVENT.of(project=PROJECT, run=RUN))
        events = [RunEvent.decode(record.data) for record in records]
        return [event for event in events if not kinds or event.kind in kinds]

    async def event(self, kind: str, **data: Any) -> RunEvent:
        """The first event of a kind with these data, awaited."""
        async with asyncio.timeout(60), self.bus.follow(EVENT.stream, EVENT.of(project=PROJECT, run=RUN)) as records:
            async for record in records:
                event = RunEvent.decode(record.data)
                if event.kind == kind and data.items() <= event.data.items():
                    return event
        raise AssertionError("the follow ended")

    async def audits(self) -> list[dict[str, Any]]:
        return [json.loads(r.data) for r in await self.bus.snapshot(AUDIT.stream, AUDIT.of(project=PROJECT))]

    async def aggregate(self) -> None:
        bus = await self.connect(Role.AGGREGATOR)
        async with bus.work(JOB.stream) as jobs:
            async for held in jobs:
                if b'"hanse.exchange_job/' in held.record.data:
                    self.sessions.append(ExchangeJob.decode(held.record.data))
                    await held.done()  # the sites here sum nothing
                    continue
                job = ReduceJob.decode(held.record.data)
                self.reduced[key_of(job)] += 1
                self.kinds.append(job.kind)
                reduced = await self.reduce(bus, job)
                subject = REDUCED.of(project=job.project, run=job.run, step=job.step, job=job.id)
                await bus.publish(subject, reduced.encode())
                # A server killed right after it took the acknowledgement never answers it again.
                with suppress(HanseError, TimeoutError):
                    async with asyncio.timeout(1):
                        await held.done()

    async def reduce(self, bus: Bus, job: ReduceJob) -> Reduced:
        common: dict[str, Any] = {"job": job.id, "project": job.project, "run": job.run, "step": job.step}
        refused = [u.participant for u in job.updates if u.participant in self.refuse]
        if refused and job.model is not None:
            refusals = [Refusal(participant=n, reason=self.refuse[n], code="tampered") for n in refused]
            return Reduced(**common, refused=tuple(refusals))
        if job.kind is JobKind.OPEN:
            return Reduced(**common, uploads={"model": "upload"})
        if job.kind is JobKind.MEASURE:
            return Reduced(**common, outputs={MEASURED: ref_of(json.dumps(job.leaves).encode(), inline=True)})
        if job.kind is JobKind.SHARD:
            self.told += job.measured or ()
            return Reduced(**common)
        total = json.loads(job.model.inline) if job.model is not None and job.model.inline else [0, 0]
        for update in job.updates:
            subject = UPDATE.of(project=job.project, run=job.run, participant=update.participant,
                                digest=update.ref.digest)  # fmt: skip
            record = await bus.last(UPDATE.stream, subject)
            assert record is not None
            total = [a + update.weight * b for a, b in zip(total, json.loads(record.data), strict=True)]
        return Reduced(**common, outputs={"model": ref_of(json.dumps(total).encode(), inline=True)})

    async def register(self, subject: str, data: bytes) -> bytes:
        request = PublishModel.decode(data)
        key = request.lineage.round, request.model.digest
        version = self.published.setdefault(key, len(self.published) + 1)
        record = ModelVersion(
            project=PROJECT, version=version, digest=request.model.digest, size=request.model.size, key="models/x",
            architecture=request.architecture, lineage=request.lineage, created_at=self.clock.now(),
            public_key=base64.b64encode(bytes(32)), metrics=request.metrics, final=request.final,
        )  # fmt: skip
        return RegistryReply(version=record).encode()

    @asynccontextmanager
    async def running(self, *names: str) -> AsyncIterator[None]:
        """Sites, an aggregator and a registry at work."""
        registry = await self.connect(Role.MODEL_REGISTRY)
        subscription = await registry.serve(PUBLISH_MODEL.wildcard(), self.register, group="registry")
        tasks = [asyncio.ensure_future(loud(self.aggregate()))]
        for name in names:
            self.sites[name] = Site(self, name)
            await self.sites[name].enrol()
            tasks.append(asyncio.ensure_future(loud(self.sites[name].run())))
        try:
            yield
        finally:
            await stopped(*tasks)
            await subscription.stop()


KEY = {"project": PROJECT, "run": RUN}


async def stopped(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def at_work(*supervisors: Supervisor) -> AsyncIterator[list[asyncio.Future[None]]]:
    """Supervisors running while inside."""
    tasks = [asyncio.ensure_future(supervisor.run()) for supervisor in supervisors]
    try:
        yield tasks
    finally:
        await stopped(*tasks)


async def loud(actor: Coroutine[Any, Any, None]) -> None:
    """An actor's own failure is a defect of the test: show it."""
    try:
        await actor
    except Exception:
        logging.getLogger(__name__).exception("an actor failed")
        raise


class MortalBus(MemoryBus):
    """A connection whose process dies at its n-th publication: just before the message is stored, or just after."""

    def __init__(self, broker: Any, *, at: int, stored: bool) -> None:
        super().__init__(broker)
        self._left, self._stored = at, stored
        self.dead, self.buried = asyncio.Event(), asyncio.Event()

    async def publish(self, subject: str, data: bytes, **options: Any) -> int:
        self._left -= 1
        is_last = self._left == 0
        if self.dead.is_set() or (is_last and not self._stored):
            await self._die()
        sequence = await super().publish(subject, data, **options)
        if is_last:
            await self._die()
        return sequence

    async def _die(self) -> None:
        self.dead.set()
        # A dead process does nothing more, neither errors nor clean-up, until the test clears it away.
        await self.buried.wait()
        raise HanseError(ErrorCode.UNAVAILABLE, "this process is dead")
