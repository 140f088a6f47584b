"""What the datapod's tests share: an enrolled home, tasks, a worker that counts, and a hub made of a memory bus."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from hanse_datapod.agent.loop import Agent
from hanse_datapod.data.settings import Split
from hanse_datapod.home.journal import TaskJournal
from hanse_datapod.home.outbox import Outbox
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.worker.port import WORKER_KINDS, DataSummary, WorkOutcome, WorkRequest, extra_output
from hanse_fabric.bus.memory import MemoryBroker, MemoryBus
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import ObjectRef, Result, Task, TaskKind
from hanse_fabric.messages.uploads import PartLink
from hanse_fabric.names import derive_id
from hanse_fabric.store.transfer import Came
from hanse_fabric.subjects import RESULT, TASK, UPDATE
from hanse_fabric.tensors.digest import digest_bytes
from hanse_fabric.tensors.file import encode_tensors, layout_like
from hanse_schemas.schema import OpenSchema
from hanse_site import SiteIdentity, SiteLink, load_identity
from hanse_site.identity import RECORD, SIGNING_KEY, SiteRecord
from hub_doors import hub_doors

_ARRAYS = {"weight": np.linspace(-1, 1, 5, dtype=np.float32)}
MODEL = encode_tensors(layout_like(_ARRAYS), _ARRAYS)
MODEL_BASE64 = base64.b64encode(MODEL)


def enrolled(home: Path) -> SiteIdentity:
    """A home as enrolling leaves it; called again for the same folder, it has the same key."""
    home.mkdir(parents=True, exist_ok=True)
    SigningKey.load_or_create(home / SIGNING_KEY)
    record = SiteRecord(
        hub="http://hub.example", hub_name="hub", project="triage", participant="north", bus_url="nats://hub.example",
        api_key="", data_schema=OpenSchema(), token_id="t", joined_at=datetime.now(UTC),
    )  # fmt: skip
    (home / RECORD).write_bytes(record.encode())
    found = load_identity(home)
    assert found is not None
    return found


def task(step: str = "r1-train", *, run: str = "a" * 12, **fields: Any) -> Task:
    digest, leaves = digest_bytes(MODEL)
    now = datetime.now(UTC)
    body: dict[str, Any] = {
        "id": derive_id(run, step, "north"), "project": "triage", "run": run, "step": step, "participant": "north",
        "workflow": "federated_averaging", "kind": TaskKind.TRAIN, "round": 1, "config": {"model": {"name": "mlp"}},
        "seed": 7, "model": ObjectRef(digest=digest, size=len(MODEL), leaves=leaves, inline=MODEL_BASE64), "peers": 3,
        "issued_at": now, "deadline": now + timedelta(hours=2),
    }  # fmt: skip
    return Task.model_validate(body | fields)


class CountingWorker:
    """A worker whose update depends on seed and model and, unlike a real one's, on how often it was asked."""

    def __init__(self, *, count: Path | None = None, size: int = 32) -> None:
        self.requests: list[WorkRequest] = []
        self.stopped: list[WorkRequest] = []
        self.size = size
        self.hold: asyncio.Event | None = None
        self.began = asyncio.Event()
        self.error: HanseError | None = None
        self.unfit: HanseError | None = None
        self.deaths = 0
        self.one_sided: HanseError | None = None
        self.parted = False
        self.metrics = {"loss": 0.5}
        self.examples = 10
        self.extras: tuple[str, ...] = ()
        self.info: dict[str, float] = {}
        self.note = ""
        self._count = count
        self.kinds = WORKER_KINDS
        self.device = "cpu"
        self.required: list[Mapping[str, Any]] = []
        self.unplaced: HanseError | None = None
        self.rested = asyncio.Event()

    async def work(self, request: WorkRequest, on_progress: Callable[[float, str], None]) -> WorkOutcome:
        self.requests.append(request)
        if self._count is not None:
            with self._count.open("a") as file:
                file.write("x")
        self.began.set()
        if self.hold is not None:
            try:
                await self.hold.wait()
            except asyncio.CancelledError:
                self.stopped.append(request)
                raise
        if self.error is not None:
            raise self.error
        if self.deaths:
            self.deaths -= 1
            raise HanseError(ErrorCode.UNAVAILABLE, "the worker's process ended")
        model = request.model.read_bytes() if request.model is not None else b""
        seed = f"{request.seed}/{len(self.requests)}/{os.getpid()}".encode() + model
        if request.kind is not TaskKind.EVALUATE:
            request.output.write_bytes(hashlib.shake_256(seed).digest(self.size))
        update = None if request.kind is TaskKind.EVALUATE else request.output
        extras = {name: extra_output(request.output, name) for name in self.extras}
        for name, path in extras.items():
            path.write_bytes(hashlib.shake_256(seed + name.encode()).digest(self.size))
        return WorkOutcome(
            update, self.examples, dict(self.metrics), 0.01, extras=extras, info=self.info, note=self.note
        )

    def require(self, config: Mapping[str, Any]) -> None:
        self.required.append(config)
        if self.unplaced is not None:
            raise self.unplaced

    async def check_data(self, schema: object, split: Split = "shuffled") -> DataSummary:
        if self.unfit is not None:
            raise self.unfit
        if split == "keyed":
            if self.one_sided is not None:
                raise self.one_sided
            return DataSummary(9, 3, "1" * 64, parted=self.parted)
        return DataSummary(10, 2, "0" * 64, parted=self.parted)

    async def rest(self) -> None:
        self.rested.set()

    async def close(self) -> None:
        """Nothing to stop."""


class NoTransfer:
    """In place of the object store, in tests where nothing goes there."""

    def fetch(self, url: str, path: Path, *, limit: int, came: Came | None = None) -> None:
        raise AssertionError(url)

    def send_part(self, path: Path, part: PartLink, start: int, size: int) -> str:
        raise AssertionError(part.url)


class Site:
    """An agent that can be started, stopped and started anew, and the hub's side of its bus."""

    def __init__(self, home: Path, *, worker: CountingWorker | None = None, policy: Policy | None = None) -> None:
        self.home = home
        self.identity = enrolled(home)
        self.worker: Any = worker or CountingWorker()
        self.policy = policy or Policy()
        self.broker = MemoryBroker()
        self.hub = MemoryBus(self.broker)
        self.transfer: Any = NoTransfer()
        self.links: Any = None
        self._running: asyncio.Task[None] | None = None
        self._doors = AsyncExitStack()
        self._open: list[Any] = []

    async def start(self) -> None:
        keys = {"north": self.identity.signing_key.public_bytes}
        await self._doors.enter_async_context(hub_doors(self.hub, keys=keys, links=self.links))
        bus = MemoryBus(self.broker)
        journal, outbox = TaskJournal(self.home), Outbox(self.home)
        self._open = [journal, outbox]
        agent = Agent(
            SiteLink(bus, self.identity, self.transfer), self.worker, home=self.home, policy=self.policy,
            schema=self.identity.schema, journal=journal, outbox=outbox,
        )  # fmt: skip
        self._running = asyncio.create_task(agent.run())

    async def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})
            self._running = None
        await self._doors.aclose()
        for each in self._open:
            each.close()
        self._open = []

    def forget_hub(self) -> None:
        """Go to another hub, as after one that lost everything."""
        self.broker = MemoryBroker()
        self.hub = MemoryBus(self.broker)

    async def give(self, given: Task) -> None:
        subject = TASK.of(project="triage", participant="north", run=given.run, step=given.step)
        await self.hub.publish(subject, given.encode())

    async def close_step(self, given: Task) -> None:
        subject = TASK.of(project="triage", participant="north", run=given.run, step=given.step)
        await self.hub.purge(TASK.stream, subject)

    async def results(self, count: int) -> list[tuple[Result, bytes]]:
        """The first `count` results with their bytes."""
        found = []
        async with asyncio.timeout(60), self.hub.follow(RESULT.stream, RESULT.wildcard(project="triage")) as records:
            async for record in records:
                found.append((Result.decode(record.data), record.data))
                if len(found) == count:
                    return found
        raise AssertionError

    async def update_of(self, result: Result) -> bytes:
        assert result.update is not None
        subject = UPDATE.of(project="triage", run=result.run, participant="north", digest=result.update.digest)
        record = await self.hub.last(UPDATE.stream, subject)
        assert record is not None
        return record.data
