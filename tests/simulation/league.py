"""A hub and its sites in one process: the true services over the bus in memory, in virtual time.

What is not theirs: the bus's server, the sites' worker processes, and the processes themselves, which are tasks here.
A simulation is given by its seed: the same seed is the same run, to the order of every message.
"""

from __future__ import annotations

import asyncio
import base64
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from directory_transfer import DirectoryTransfer
from hanse_aggregator.service import Aggregator
from hanse_compensator.own_memory import OwnMemory
from hanse_compensator.service import Compensator, announce
from hanse_coordinator.authority import NoCredentials
from hanse_coordinator.doors import SiteDoors
from hanse_coordinator.links import LinkServer
from hanse_coordinator.records import Buckets, RunRecord
from hanse_coordinator.runs.settings import WorkflowSettings
from hanse_coordinator.runs.supervisor import Supervisor
from hanse_datapod.agent.loop import Agent
from hanse_datapod.home.journal import TaskJournal
from hanse_datapod.home.outbox import Outbox
from hanse_datapod.policy.masking import MaskingPolicy
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.worker.port import Worker
from hanse_fabric.bus.memory import MemoryBroker, MemoryBus
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.identity.sealing import SealingKey
from hanse_fabric.messages import AuditEvent, CompensatorRecord, ModelVersion, ParticipantRecord, RunEvent
from hanse_fabric.messages.base import Message
from hanse_fabric.records import Bucket
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.subjects import AUDIT, COMPENSATORS, EVENT, MODELS, STREAMS, Subject
from hanse_fabric.tensors.file import decode_tensors
from hanse_fabric.virtual_time import VirtualClock
from hanse_model_registry.registry import Registry
from hanse_model_registry.service import RegistryService
from hanse_reduction.arithmetic import Arithmetic, Processor
from hanse_reduction.engine import Engine
from hanse_schemas.job import check_job
from hanse_schemas.schema import DataSchema, OpenSchema
from hanse_site import SiteIdentity, load_identity
from hanse_site.identity import RECORD, SIGNING_KEY, SiteRecord
from links import unlimited
from simulation.faults import Conduct, Fault, SimulatedLink
from simulation.network import Network, Published, Weather
from simulation.process import Process
from simulation.trainer import Trainer

PROJECT, RUN = "triage", "run000000001"
MakeWorker = Callable[[VirtualClock, int], Worker]
OPEN = OpenSchema()
KEY = {"project": PROJECT, "run": RUN}
ENDED = ("completed", "failed", "cancelled")
WORKFLOWS = ("federated_averaging", "cyclic_weight_transfer", "association_study")
SEEN_S = 2.0
"""Until all sites have shown that they are there."""
M = TypeVar("M", bound=Message)


@dataclass
class League:
    """All processes of a simulation, by name: coordinator-0, aggregator-0, registry, site-0 and so on.

    Attributes:
        rules: of the sites' policy, beside those that all have.
        conduct: how each site behaves, and what it has heard and answered.
    """

    clock: VirtualClock
    folder: Path
    network: Network
    group: asyncio.TaskGroup
    rules: Mapping[str, Any] = field(default_factory=dict)
    processes: dict[str, Process] = field(default_factory=dict)
    conduct: dict[str, Conduct] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.broker = MemoryBroker(self.clock)
        self.store = DirectoryStore(self.folder / "store", self.clock)
        self.owner = MemoryBus(self.broker)
        self.buckets = Buckets.on(self.owner)
        self.sealing = SealingKey.create()
        pinned = base64.b64encode(self.sealing.public_bytes).decode()
        rules = {"workflows": WORKFLOWS, "masking": MaskingPolicy.model_validate({"compensator": pinned})}
        self.policy = Policy.model_validate(rules | dict(self.rules))

    def process(self, name: str, main: Callable[[MemoryBus], Awaitable[None]], *, site: bool = False) -> None:
        made = self.processes[name] = Process(name, main, self.broker, self.network, site=site)
        made.start(self.group)

    async def restart(self, name: str, after: float = 1.0) -> None:
        """Crash a process, and start it anew `after` seconds."""
        await self.processes[name].crash()
        await self.clock.sleep(after)
        self.processes[name].start(self.group)

    def start_hub(self, arithmetic: Arithmetic, aggregators: int = 2, coordinators: int = 1, **settings: Any) -> None:
        """Start the services; `arithmetic` is the aggregators', `settings` are of the coordinators' workflows."""
        signing = SigningKey.create()

        async def coordinate(name: str, bus: MemoryBus) -> None:
            about: dict[str, Any] = {
                "bus": bus, "store": self.store, "buckets": Buckets.on(bus), "clock": self.clock,
                "settings": WorkflowSettings(instance=name, **settings),
            }  # fmt: skip
            async with asyncio.TaskGroup() as group:
                group.create_task(Supervisor(**about).run())
                links = LinkServer(**about, quotas=unlimited(bus, self.store, self.clock))
                group.create_task(links.run())
                doors = SiteDoors(bus, links=links, credentials=NoCredentials(), instance=name)
                group.create_task(doors.run())

        async def aggregate(bus: MemoryBus) -> None:
            await Aggregator(bus, Engine(self.store, 1, arithmetic)).run(asyncio.Event())

        async def register(bus: MemoryBus) -> None:
            registry = Registry(bus, self.store, signing, self.clock)
            serving = RegistryService(bus, registry, self.clock, sweep_after=60.0, link_for=timedelta(minutes=15))
            await serving.run(asyncio.Event())

        async def sum_masks(bus: MemoryBus) -> None:
            await announce(bus, "compensator", self.sealing.public_bytes, self.clock)
            own = OwnMemory(self.folder / "compensator")
            await Compensator(bus, self.store, self.sealing, own=own, clock=self.clock).run(asyncio.Event())

        for number in range(coordinators):
            name = f"coordinator-{number}"
            self.process(name, partial(coordinate, name))
        self.process("compensator", sum_masks)
        for number in range(aggregators):
            self.process(f"aggregator-{number}", aggregate)
        self.process("registry", register)

    async def add_site(self, name: str, worker: Worker, schema: DataSchema = OPEN) -> None:
        """Enrol a site as the hub's API would, and start its datapod's agent."""
        conduct = self.conduct[name] = Conduct()
        home = self.folder / name
        identity = enrolled(home, name, self.clock, schema)
        record = ParticipantRecord(
            project=PROJECT, participant=name, public_key=base64.b64encode(identity.signing_key.public_bytes),
            bus_key="U", enrolled_at=self.clock.now(),
        )  # fmt: skip
        await self.buckets.participants.create(record, project=PROJECT, participant=name)

        async def take_part(bus: MemoryBus) -> None:
            with closing(TaskJournal(home, clock=self.clock)) as journal, closing(Outbox(home, self.clock)) as outbox:
                transfer = DirectoryTransfer(self.folder / "store", self.clock)
                link = SimulatedLink(bus, identity, transfer, conduct)
                await Agent(
                    link, worker, home=home, policy=self.policy, schema=identity.schema,
                    journal=journal, outbox=outbox,
                ).run()  # fmt: skip

        self.process(name, take_part, site=True)

    def let(self, site: str, *faults: Fault) -> None:
        """Have a site behave so from now on; without faults, as it should."""
        self.conduct[site].faults = faults

    async def submit(self, run: str = RUN, **job: Any) -> None:
        now = self.clock.now()
        record = RunRecord(
            project=PROJECT, run=run, job=check_job(job), created_at=now, updated_at=now, created_by="key:owner"
        )
        await self.buckets.runs.create(record, project=PROJECT, run=run)

    async def versions(self) -> list[ModelVersion]:
        """What is in the registry, the newest last."""
        found = [entry.value for entry in await Bucket(self.owner, MODELS, ModelVersion).list(project=PROJECT)]
        return sorted(found, key=lambda version: version.version)

    async def model(self) -> dict[str, np.ndarray]:
        """The newest version in the registry."""
        newest = (await self.versions())[-1]
        return decode_tensors(self.store.get(newest.key, limit=1 << 24))[1]

    def messages(self) -> list[str]:
        """Subjects of all that is on the bus, in order, stream by stream."""
        return [record.subject for stream in STREAMS for record in self.broker.matching(stream, ">")]

    def published(self, subject: Subject, kind: type[M]) -> list[M]:
        """All messages of a subject and a kind that were ever published, in order."""
        found = (_read(kind, message.data) for message in self.said(subject))
        return [message for message in found if message is not None]

    def said(self, subject: Subject) -> list[Published]:
        """As `published`, undecoded."""
        row = re.compile(re.escape(subject.wildcard()).replace(r"\*", "[^.]+") + "$")
        return [message for message in self.network.published if row.match(message.subject)]

    def on_bus(self, subject: Subject) -> list[str]:
        """The subjects of all that is on the bus now of a subject."""
        assert subject.stream is not None
        return [record.subject for record in self.broker.matching(subject.stream, subject.wildcard())]

    def audits(self, *actions: str) -> list[AuditEvent]:
        """What was audited."""
        events = self.published(AUDIT, AuditEvent)
        return [event for event in events if not actions or event.action in actions]

    def takings(self) -> int:
        """How often a coordinator took up the run."""
        return len(self.audits("run.take"))

    def events(self, *kinds: str) -> list[RunEvent]:
        """What people were told of the run."""
        return [event for event in self.published(EVENT, RunEvent) if not kinds or event.kind in kinds]

    async def event(self, kind: str, **data: Any) -> RunEvent:
        """The first event of a kind with these data, awaited."""
        assert EVENT.stream is not None
        async with self.clock.timeout(86_400), self.owner.follow(EVENT.stream, EVENT.of(**KEY)) as records:
            async for record in records:
                event = RunEvent.decode(record.data)
                if event.kind == kind and data.items() <= event.data.items():
                    return event
        raise AssertionError("a follow does not end")

    async def want(self, wanted: str) -> None:
        """Say as the API does what is wanted of the run."""
        await self.buckets.runs.change(lambda record: record.model_copy(update={"wanted": wanted}), **KEY)

    async def record(self) -> RunRecord:
        """The run's record as it is."""
        return await self.until(lambda _: True)

    async def ended(self, run: str = RUN) -> RunRecord:
        """The run's record when it has ended."""
        return await self.until(lambda record: record.state in ENDED, run)

    async def until(self, condition: Callable[[RunRecord], bool], run: str = RUN) -> RunRecord:
        """The run's record as soon as it is so. Records are written every 0.2 s at most: a round may be in none, so ask
        for `>=`. Of a run that has ended otherwise nothing is awaited (a virtual week takes minutes)."""
        async with self.clock.timeout(7 * 86_400), self.buckets.runs.watch(project=PROJECT, run=run) as changes:
            async for change in changes:
                record = None if change is None else change.value
                if record is not None and condition(record):
                    return record
                assert record is None or record.state not in ENDED, f"it has ended otherwise: {record}"
        raise AssertionError("a watch does not end")


@asynccontextmanager
async def league(
    clock: VirtualClock,
    folder: Path,
    *,
    sites: int | Sequence[str] = 10,
    coordinators: int = 1,
    weather: Weather | None = None,
    seed: int = 0,
    worker: MakeWorker | None = None,
    schema: DataSchema = OPEN,
    rules: Mapping[str, Any] | None = None,
    arithmetic: Arithmetic | None = None,
    **settings: Any,
) -> AsyncIterator[League]:
    """A hub with its sites at work, in the virtual time that runs already.

    Args:
        sites: how many, or their names.
        worker: makes a site's, by its number; None: `Trainer`.
        schema: of the project's data.
        rules: of the sites' policy, beside those that all have.
        arithmetic: of the aggregators; None: the processor's.
        settings: of the coordinators' workflows.
    """
    random.seed(seed)  # writers of a record that lost a race wait for a moment by chance
    async with asyncio.TaskGroup() as group:
        made = League(clock, folder, Network(clock, weather or Weather(), seed), group, rules or {})
        made.start_hub(arithmetic or Processor(), coordinators=coordinators, **settings)
        names = [f"site-{number}" for number in range(sites)] if isinstance(sites, int) else sites
        for number, name in enumerate(names):
            await made.add_site(name, worker(clock, number) if worker else Trainer(clock, number), schema)
        await clock.sleep(SEEN_S)
        async with clock.timeout(600):  # where messages are lost it takes a compensator longer
            while not await Bucket(made.owner, COMPENSATORS, CompensatorRecord).list():
                await clock.sleep(1.0)
        yield made
        for process in made.processes.values():
            await process.crash()


def _read(kind: type[M], data: bytes) -> M | None:
    """A message; None where it is of another kind."""
    try:
        return kind.decode(data)
    except HanseError as error:
        if error.code is not ErrorCode.UNKNOWN_SCHEMA:
            raise
        return None


def enrolled(home: Path, name: str, clock: VirtualClock, schema: DataSchema) -> SiteIdentity:
    """A home as enrolling leaves it."""
    home.mkdir(parents=True)
    SigningKey.load_or_create(home / SIGNING_KEY)
    record = SiteRecord(
        hub="http://hub.example", hub_name="hub", project=PROJECT, participant=name, bus_url="nats://hub.example",
        api_key="", data_schema=schema, token_id="t", joined_at=clock.now(),
    )  # fmt: skip
    (home / RECORD).write_bytes(record.encode())
    found = load_identity(home)
    assert found is not None
    return found
