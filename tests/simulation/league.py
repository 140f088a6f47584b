"""A hub and its sites in one process: the true services over the bus in memory, in virtual time.

What is not theirs: the bus's server, the sites' worker processes, and the processes themselves, which are tasks here.
A simulation is given by its seed: the same seed is the same run, to the order of every message.
"""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hanse_aggregator.service import Aggregator
from hanse_compensator.service import Compensator, announce
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
from hanse_fabric.errors import HanseError
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.identity.sealing import SealingKey
from hanse_fabric.messages import AuditEvent, ModelVersion, ParticipantRecord
from hanse_fabric.records import Bucket
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.store.transfer import DirectoryTransfer
from hanse_fabric.subjects import AUDIT, MODELS, STREAMS
from hanse_fabric.tensors.file import decode_tensors
from hanse_fabric.virtual_time import VirtualClock
from hanse_model_registry.registry import Registry
from hanse_model_registry.service import RegistryService
from hanse_reduction.engine import Engine
from hanse_schemas.job import check_job
from hanse_schemas.schema import DataSchema, OpenSchema
from hanse_site import SiteIdentity, SiteLink, load_identity
from hanse_site.identity import RECORD, SIGNING_KEY, SiteRecord
from simulation.network import DistantBus, Network, Weather
from simulation.trainer import Trainer

PROJECT, RUN = "triage", "run000000001"
MakeWorker = Callable[[VirtualClock, int], Worker]
OPEN = OpenSchema()
KEY = {"project": PROJECT, "run": RUN}
ENDED = ("completed", "failed", "cancelled")


@dataclass
class Process:
    """One simulated process: what it runs on a bus connection of its own, again a second after it failed."""

    name: str
    main: Callable[[MemoryBus], Awaitable[None]]
    connect: Callable[[], DistantBus]
    failures: list[HanseError] = field(default_factory=list)
    _bus: DistantBus | None = None
    _task: asyncio.Task[None] | None = None
    _crashed: bool = False

    def start(self, group: asyncio.TaskGroup) -> None:
        self._crashed = False
        self._task = group.create_task(self._run(), name=self.name)

    async def _run(self) -> None:
        """Whatever is no HanseError is a defect, and ends the simulation."""
        while not self._crashed:  # a task group that fails while it is cancelled tells of the failure alone
            self._bus = self.connect()
            try:
                await self.main(self._bus)
            except* HanseError as group:
                self.failures.append(_first(group))
            await self._bus.close()
            await self._bus.clock.sleep(1.0)

    def cut(self, seconds: float) -> None:
        """Cut its connection for so long; it works on, and its messages wait or are lost."""
        if self._bus is not None:
            self._bus.cut_until = self._bus.clock.monotonic() + seconds

    async def crash(self) -> None:
        """End it as a power cut does: its connection is gone before it can say anything."""
        self._crashed = True
        if self._bus is not None and self._task is not None:
            await self._bus.close()
            self._task.cancel()
            await asyncio.wait({self._task})


def _first(group: BaseExceptionGroup[HanseError]) -> HanseError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


@dataclass
class League:
    """All processes of a simulation, by name: coordinator, aggregator, registry, site-0 and so on."""

    clock: VirtualClock
    folder: Path
    network: Network
    group: asyncio.TaskGroup
    processes: dict[str, Process] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.broker = MemoryBroker(self.clock)
        self.store = DirectoryStore(self.folder / "store", self.clock)
        self.owner = MemoryBus(self.broker)
        self.buckets = Buckets.on(self.owner)
        self.sealing = SealingKey.create()
        pinned = base64.b64encode(self.sealing.public_bytes).decode()
        self.policy = Policy(
            workflows=("federated_averaging", "cyclic_weight_transfer"),
            masking=MaskingPolicy.model_validate({"compensator": pinned}),
        )

    def process(self, name: str, main: Callable[[MemoryBus], Awaitable[None]]) -> None:
        made = self.processes[name] = Process(name, main, lambda: DistantBus(self.broker, self.network))
        made.start(self.group)

    async def restart(self, name: str, after: float = 1.0) -> None:
        """Crash a process, and start it anew `after` seconds."""
        await self.processes[name].crash()
        await self.clock.sleep(after)
        self.processes[name].start(self.group)

    def start_hub(self, aggregators: int = 2, coordinators: int = 1) -> None:
        signing = SigningKey.create()

        async def coordinate(name: str, bus: MemoryBus) -> None:
            settings, buckets = WorkflowSettings(instance=name), Buckets.on(bus)
            about: dict[str, Any] = {
                "bus": bus, "store": self.store, "buckets": buckets, "clock": self.clock, "settings": settings,
            }  # fmt: skip
            async with asyncio.TaskGroup() as group:
                group.create_task(Supervisor(**about).run())
                group.create_task(LinkServer(**about).run())

        async def aggregate(bus: MemoryBus) -> None:
            await Aggregator(bus, Engine(self.store, threads=1)).run(asyncio.Event())

        async def register(bus: MemoryBus) -> None:
            registry = Registry(bus, self.store, signing, self.clock)
            serving = RegistryService(bus, registry, self.clock, sweep_after=60.0, link_for=timedelta(minutes=15))
            await serving.run(asyncio.Event())

        async def sum_masks(bus: MemoryBus) -> None:
            await announce(bus, "compensator", self.sealing, self.clock)
            await Compensator(bus, self.store, self.sealing, clock=self.clock).run(asyncio.Event())

        for number in range(coordinators):
            name = f"coordinator-{number}"
            self.process(name, partial(coordinate, name))
        self.process("compensator", sum_masks)
        for number in range(aggregators):
            self.process(f"aggregator-{number}", aggregate)
        self.process("registry", register)

    async def add_site(self, number: int, worker: Worker, schema: DataSchema) -> None:
        """Enrol a site as the hub's API would, and start its datapod's agent."""
        name = f"site-{number}"
        home = self.folder / name
        identity = enrolled(home, name, self.clock, schema)
        record = ParticipantRecord(
            project=PROJECT, participant=name, public_key=base64.b64encode(identity.signing_key.public_bytes),
            bus_key="U", enrolled_at=self.clock.now(),
        )  # fmt: skip
        await self.buckets.participants.create(record, project=PROJECT, participant=name)

        async def take_part(bus: MemoryBus) -> None:
            with closing(TaskJournal(home, clock=self.clock)) as journal, closing(Outbox(home, self.clock)) as outbox:
                link = SiteLink(bus, identity, DirectoryTransfer(self.folder / "store", self.clock))
                await Agent(
                    link, worker, home=home, policy=self.policy, schema=identity.schema,
                    journal=journal, outbox=outbox,
                ).run()  # fmt: skip

        self.process(name, take_part)

    async def submit(self, **job: Any) -> None:
        now = self.clock.now()
        record = RunRecord(
            project=PROJECT, run=RUN, job=check_job(job), created_at=now, updated_at=now, created_by="key:owner"
        )
        await self.buckets.runs.create(record, **KEY)

    async def model(self) -> dict[str, np.ndarray]:
        """The newest version in the registry."""
        versions = await Bucket(self.owner, MODELS, ModelVersion).list(project=PROJECT)
        newest = max((entry.value for entry in versions), key=lambda version: version.version)
        return decode_tensors(self.store.get(newest.key, limit=1 << 24))[1]

    def messages(self) -> list[str]:
        """Subjects of all that is on the bus, in order, stream by stream."""
        return [record.subject for stream in STREAMS for record in self.broker.matching(stream, ">")]

    def takings(self) -> int:
        """How often a coordinator took up the run."""
        assert AUDIT.stream is not None
        events = [AuditEvent.decode(record.data) for record in self.broker.matching(AUDIT.stream, ">")]
        return sum(event.action == "run.take" for event in events)

    async def ended(self) -> RunRecord:
        """The run's record when it has ended."""
        return await self.until(lambda record: record.state in ENDED)

    async def until(self, condition: Callable[[RunRecord], bool]) -> RunRecord:
        async with self.clock.timeout(7 * 86_400), self.buckets.runs.watch(**KEY) as changes:
            async for change in changes:
                if change is not None and change.value is not None and condition(change.value):
                    return change.value
        raise AssertionError("a watch does not end")


@asynccontextmanager
async def league(
    clock: VirtualClock,
    folder: Path,
    *,
    sites: int = 10,
    coordinators: int = 1,
    weather: Weather | None = None,
    seed: int = 0,
    worker: MakeWorker | None = None,
    schema: DataSchema = OPEN,
) -> AsyncIterator[League]:
    """A hub with its sites at work, in the virtual time that runs already."""
    random.seed(seed)  # writers of a record that lost a race wait for a moment by chance
    async with asyncio.TaskGroup() as group:
        made = League(clock, folder, Network(clock, weather or Weather(), seed), group)
        made.start_hub(coordinators=coordinators)
        for number in range(sites):
            await made.add_site(number, worker(clock, number) if worker else Trainer(clock, number), schema)
        yield made
        for process in made.processes.values():
            await process.crash()


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


@dataclass
class Played:
    """What came of a simulation.

    Attributes:
        seconds: of virtual time.
        lost: messages that the network lost.
        takings: how often a coordinator took up the run.
        messages: subjects of all that is on the bus, in order, stream by stream.
        model: the newest version.
    """

    job: dict[str, Any]
    record: RunRecord
    seconds: float
    lost: int
    takings: int
    messages: list[str]
    model: dict[str, np.ndarray]


def play(
    folder: Path,
    job: dict[str, Any],
    *,
    sites: int = 10,
    coordinators: int = 1,
    seed: int = 0,
    weather: Weather | None = None,
    trouble: Callable[[League], Awaitable[None]] | None = None,
    worker: MakeWorker | None = None,
    schema: DataSchema = OPEN,
) -> Played:
    """Simulate a run from its submission to its completion.

    Args:
        trouble: acts beside the run; it is cut short where the run ends first.
        worker: makes a site's, by its number; None: `Trainer`.
        schema: of the project's data.
    """
    clock = VirtualClock()

    async def main() -> Played:
        simulation = league(
            clock, folder, sites=sites, coordinators=coordinators, weather=weather, seed=seed, worker=worker,
            schema=schema,
        )  # fmt: skip
        async with simulation as made:
            acting = made.group.create_task(_act(made, trouble))
            await made.submit(**job)
            record = await made.ended()
            acting.cancel()
            return Played(
                job, record, clock.monotonic(), made.network.lost, made.takings(), made.messages(), await made.model()
            )

    played = clock.run(main())
    if played.record.state != "completed":
        raise RuntimeError(f"the run {played.record.state}: {played.record.reason}")
    return played


async def _act(made: League, trouble: Callable[[League], Awaitable[None]] | None) -> None:
    if trouble is not None:
        await trouble(made)
