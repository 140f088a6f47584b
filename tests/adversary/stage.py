"""What attacks are played on: sites with the real agents on a real nats-server, and a real compensator.

A site's worker is numpy, so that a task takes milliseconds: full-batch gradient steps of linear regression over data of
the site's own, of which everybody here can say what its update is (`Site.update`). Whatever else a site does is real.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from directory_transfer import DirectoryTransfer
from hanse_compensator.own_memory import OwnMemory
from hanse_compensator.service import Compensator
from hanse_coordinator.links import LinkServer
from hanse_coordinator.records import Buckets
from hanse_coordinator.runs.settings import WorkflowSettings
from hanse_datapod.agent.loop import Agent
from hanse_datapod.data.settings import Split
from hanse_datapod.home.journal import TaskJournal
from hanse_datapod.home.outbox import Outbox
from hanse_datapod.policy.masking import MaskingPolicy
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.worker.port import TRAINING_KINDS, DataState, DataSummary, Worker, WorkOutcome, WorkRequest
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.clock import SystemClock
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.identity.sealing import SealingKey
from hanse_fabric.messages import TaskKind
from hanse_fabric.messages.participants import ParticipantRecord
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.subjects import PARTICIPANTS, Role
from hanse_fabric.tensors.file import layout_like, read_tensors, write_tensors
from hanse_privacy.masks.seal import roster_digest
from hanse_privacy.works.people import rows, sketch
from hanse_schemas.http.joining import Joined
from hanse_schemas.schema import DataSchema, OpenSchema
from hanse_site import SiteIdentity, SiteLink
from hanse_site.enrol import _store
from hanse_site.identity import SIGNING_KEY
from hub_doors import hub_doors
from links import unlimited
from servers import NatsServer

FEATURES, EXAMPLES, RATE = 8, 40, 0.1
Array = NDArray[np.float64]
_numbers = itertools.count(1)


class Regression:
    """A site's worker. Behaves as `hanse_datapod.worker.port.Worker`.

    Attributes:
        x, y: its data: (examples, features) and (examples,).
    """

    kinds = TRAINING_KINDS
    device = "cpu"

    def __init__(self, index: int) -> None:
        draw = np.random.default_rng([7, index])
        self.x = draw.normal(size=(EXAMPLES + index, FEATURES))
        self.y = self.x @ np.linspace(-1, 1, FEATURES) + draw.normal(size=len(self.x))

    def update(self, model: Array, rate: float = RATE, clip: float | None = None) -> Array:
        """What it answers to a model, which is sent in float32."""
        model = model.astype(np.float32).astype(np.float64)
        step = -rate * 2 * self.x.T @ (self.x @ model - self.y) / len(self.x)
        if clip is not None:
            step *= min(1.0, clip / max(float(np.linalg.norm(step)), 1e-300))
        return step.astype(np.float32).astype(np.float64)

    async def work(self, request: WorkRequest, on_progress: Callable[[float, str], None]) -> WorkOutcome:
        if request.kind is TaskKind.INITIALIZE:
            return self._wrote(request, np.random.default_rng(request.seed).normal(size=FEATURES), {})
        assert request.model is not None
        model = read_tensors(request.model)[1]["weight"].astype(np.float64)
        metrics = {"loss": float(np.mean((self.x @ model - self.y) ** 2))}
        if request.kind is TaskKind.EVALUATE:
            return WorkOutcome(None, len(self.x), metrics, 0.0)
        rate = ((request.config.get("train") or {}).get("optimizer") or {}).get("lr", RATE)
        return self._wrote(
            request, self.update(model, rate, (request.config.get("privacy") or {}).get("clip")), metrics
        )

    def _wrote(self, request: WorkRequest, weight: Array, metrics: dict[str, float]) -> WorkOutcome:
        arrays = {"weight": weight.astype(np.float32)}
        write_tensors(request.output, layout_like(arrays), arrays)
        return WorkOutcome(request.output, len(self.x), metrics, 0.0, data=self.state())

    def state(self) -> DataState:
        """Of its data."""
        people = sketch(rows(self.x, self.y))
        return DataState(hashlib.sha256(people).hexdigest(), base64.b64encode(people).decode())

    def require(self, config: Mapping[str, Any]) -> None:
        """Every task may be done here."""

    async def check_data(self, schema: object, split: Split = "shuffled") -> DataSummary:
        return DataSummary(len(self.x), len(self.x), "0" * 64)

    async def rest(self) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """Nothing to stop."""


@dataclass
class Site:
    """One enrolled site, with its credentials, its home and its agent, which may be stopped and started again."""

    identity: SiteIdentity
    worker: Any
    policy: Policy
    store: Path
    schema: DataSchema
    _running: asyncio.Task[None] | None = None
    _open: list[Any] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.identity.participant

    @property
    def home(self) -> Path:
        return self.identity.home

    def update(self, model: Array, **how: Any) -> Array:
        """Its plain update, which nobody but the site may know."""
        found: Array = self.worker.update(model, **how)
        return found

    async def start(self) -> None:
        bus = await NatsBus.connect(
            self.identity.record.bus_url, f"{self.identity.project}.{self.name}", creds=self.identity.creds,
            inbox_prefix=self.identity.inbox_prefix,
        )  # fmt: skip
        journal, outbox = TaskJournal(self.home), Outbox(self.home)
        link = SiteLink(bus, self.identity, DirectoryTransfer(self.store, SystemClock()))
        agent = Agent(
            link, self.worker, home=self.home, policy=self.policy, schema=self.schema, journal=journal, outbox=outbox
        )
        self._open = [link, journal, outbox]
        self._running = asyncio.create_task(agent.run())

    async def stop(self) -> None:
        if self._running is None:
            return
        self._running.cancel()
        await asyncio.wait({self._running})
        self._running = None
        link, journal, outbox = self._open
        await link.close()
        journal.close()
        outbox.close()


@dataclass
class Stage:
    """A project of its own on the server, with sites at work.

    Attributes:
        run: what tasks are of, unless an attack says otherwise.
        coordinator, aggregator: the connections with their rights, while the hub's doors are open.
        key: the compensator's; sites pin its public part, and the roster of them all.
    """

    server: NatsServer
    folder: Path
    project: str
    run: str
    key: SealingKey = field(default_factory=SealingKey.create)
    sites: dict[str, Site] = field(default_factory=dict)
    coordinator: NatsBus = field(init=False)
    aggregator: NatsBus = field(init=False)

    @property
    def names(self) -> list[str]:
        return sorted(self.sites)

    @property
    def store(self) -> DirectoryStore:
        return DirectoryStore(self.folder / "store")

    def add(self, index: int, worker: Worker, schema: DataSchema) -> Site:
        """Enrol a site as the hub would, with a policy that trusts everybody; `pin` makes a cautious one of it."""
        name = f"site-{index}"
        home = self.folder / name
        home.mkdir()
        SigningKey.create().save(home / SIGNING_KEY)
        key = KeyPair.create(KeyKind.USER)
        told = {
            "project": self.project, "participant": name, "bus_url": self.server.url, "bus_ca": None, "store_ca": None,
            "bus_jwt": self.server.authority.participant_jwt(self.project, name, key.public), "schema": schema,
            "hub_name": "", "api_key": "",
        }  # fmt: skip
        joined = Joined.model_validate(told)
        identity = _store(home, "http://hub.example", "t", key, joined, datetime.now(UTC), None)
        made = self.sites[name] = Site(identity, worker, Policy(), self.folder / "store", schema)
        return made

    def pin(self, **rules: Any) -> None:
        """Give all sites a cautious policy: masked sums only, with this compensator, among these sites.

        Args:
            rules: further sections of the policy; `masking` adds to what is said above.
        """
        roster = roster_digest([site.identity.signing_key.public_bytes for site in self.sites.values()])
        pinned: dict[str, Any] = {
            "required": True, "compensator": base64.b64encode(self.key.public_bytes), "roster": roster.hex(),
        }  # fmt: skip
        masking = MaskingPolicy.model_validate(pinned | rules.pop("masking", {}))
        for site in self.sites.values():
            site.policy = Policy.model_validate({"masking": masking} | rules)

    async def enrol(self) -> None:
        """Write the roster that the compensator reads."""
        for site in self.sites.values():
            record = ParticipantRecord(
                project=self.project, participant=site.name, bus_key="U", enrolled_at=datetime.now(UTC),
                public_key=base64.b64encode(site.identity.signing_key.public_bytes),
            )  # fmt: skip
            where = PARTICIPANTS.of(project=self.project, participant=site.name)
            await self.coordinator.publish(where, record.encode())

    @asynccontextmanager
    async def doors(self) -> AsyncIterator[None]:
        """The hub's doors, by the rights of the two services that have them; its sites are enrolled."""
        roles = (Role.COORDINATOR, Role.AGGREGATOR)
        coordinator, aggregator = await asyncio.gather(*(self.server.connect(role) for role in roles))
        self.coordinator, self.aggregator = coordinator, aggregator
        try:
            await self.enrol()
            links = LinkServer(
                bus=coordinator, store=self.store, buckets=Buckets.on(coordinator), clock=SystemClock(),
                settings=WorkflowSettings(instance="hub"), quotas=unlimited(coordinator, self.store),
            )  # fmt: skip
            async with hub_doors(coordinator, aggregator, links=links):
                yield
        finally:
            await coordinator.close()
            await aggregator.close()

    @asynccontextmanager
    async def compensating(self) -> AsyncIterator[None]:
        """The compensator at work."""
        bus, stopping = await self.server.connect(Role.COMPENSATOR), asyncio.Event()
        own = OwnMemory(self.folder / "memory")
        work = asyncio.create_task(Compensator(bus, self.store, self.key, own=own).run(stopping))
        try:
            yield
        finally:
            stopping.set()
            await work
            await bus.close()


MakeWorker = Callable[[int], Any]


@asynccontextmanager
async def staged(
    server: NatsServer,
    folder: Path,
    *,
    sites: int = 4,
    worker: MakeWorker = Regression,
    schema: DataSchema | None = None,
    **rules: Any,
) -> AsyncIterator[Stage]:
    """Sites and a compensator at work, in a project that no other test has.

    Args:
        folder: an empty one, for the sites' homes and the store.
        worker: makes a site's, by its number.
        schema: of the project's data; None: any.
        rules: sections of the sites' policy (`Stage.pin`).
    """
    number = next(_numbers)
    stage = Stage(server, folder, f"attacked-{number}", f"run{number:09}")
    for index in range(sites):
        stage.add(index, worker(index), schema or OpenSchema())
    stage.pin(**rules)
    async with at_work(stage):
        yield stage


@asynccontextmanager
async def at_work(stage: Stage) -> AsyncIterator[None]:
    """All sites of a stage, enrolled and at work, with its doors and its compensator."""
    async with stage.doors(), stage.compensating():
        await asyncio.gather(*(site.start() for site in stage.sites.values()))
        try:
            yield
        finally:
            await asyncio.gather(*(site.stop() for site in stage.sites.values()))
