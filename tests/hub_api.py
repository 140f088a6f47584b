"""A hub's API on a bus in memory: the real handlers behind a real HTTP server; and a site that joins there."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aiohttp import DummyCookieJar
from aiohttp.test_utils import TestClient, TestServer

from clocks import HandClock
from hanse_coordinator.api.hub import Hub, HubInfo
from hanse_coordinator.api.server import application
from hanse_coordinator.api.table import ROUTES
from hanse_coordinator.people.records import PersonRecord, person_key
from hanse_coordinator.quotas import Quotas
from hanse_coordinator.records import ApiKeyRecord
from hanse_fabric.bus.memory import MemoryBroker, MemoryBus
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.identity.secrets import make_api_key
from hanse_fabric.store.directory import DirectoryStore
from hanse_model_registry.registry import Registry
from hanse_model_registry.service import RegistryService
from hanse_schemas.http.keys import ApiRole
from hanse_site.joining import proved

START = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
SCHEMA = {"kind": "array", "shape": [64], "task": "classification", "classes": 10}
JOB = {"rounds": 2, "model": {"name": "mlp", "hidden": [8]}, "participants": {"minimum": 2}}
QUOTAS = Quotas(storage=1 << 20, runs=20, sites=20, bytes_a_day=2 << 20)


class FakeCredentials:
    """Stands for the bus's keys, which are tested with the real server elsewhere; remembers what was revoked."""

    def __init__(self) -> None:
        self.revoked: list[str] = []

    async def regions(self) -> tuple[str, ...]:
        return ("hub", "eu")

    async def issue(self, project: str, participant: str, bus_key: str, *, region: str) -> str:
        return f"jwt for {project}/{participant}/{bus_key} in {region}"

    async def revoke(self, region: str, *bus_keys: str) -> None:
        assert region in await self.regions()
        self.revoked.extend(bus_keys)

    async def revoke_leaf(self, region: str, bus_key: str) -> list[str]:
        self.revoked.append(f"{bus_key} of {region}")
        return ["leaf-2"]


class Api:
    """One replica, and a client to talk to it."""

    def __init__(self, hub: Hub, client: TestClient[Any, Any], clock: HandClock) -> None:
        self.hub, self.client, self.clock = hub, client, clock

    async def make_key(self, role: str, project: str | None = None, **more: Any) -> str:
        """Register a key; returns its text."""
        key = make_api_key()
        record = ApiKeyRecord(
            id=key.id, hash=key.hash, role=ApiRole(role), project=project, created_at=self.clock.now(), **more
        )
        entry = await self.hub.buckets.keys.create(record, key=key.id)
        self.hub.keys.note(entry.value, entry.revision)
        return key.text

    async def make_owner(self, *projects: str) -> str:
        """The key of an owner of all projects, who has made these."""
        key = await self.make_key("owner")
        for name in projects:
            await self.ok("POST", "/v1/projects", key, {"name": name, "schema": SCHEMA})
        return key

    async def make_person(self, name: str, role: str = "owner", projects: tuple[str, ...] | None = None) -> None:
        """Let a person in, who has no password yet: `Browser.enter` opens sessions without."""
        record = PersonRecord.model_validate(
            {"name": name, "role": role, "projects": projects, "created_at": self.clock.now(), "created_by": "test"}
        )
        await self.hub.people.create(person_key(name), record)

    async def call(
        self, method: str, path: str, key: str | None = None, body: Any = None, **more: Any
    ) -> tuple[int, Any]:
        """(status, decoded JSON)."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with self.client.request(method, path, json=body, headers=headers, **more) as response:
            return response.status, await response.json()

    async def ok(self, method: str, path: str, key: str | None = None, body: Any = None) -> Any:
        """The JSON of an answer that must be good."""
        status, answer = await self.call(method, path, key, body)
        assert status in (200, 201), answer
        return answer

    async def refused(self, method: str, path: str, key: str | None = None, body: Any = None) -> tuple[int, str, str]:
        """(status, code, message) of an answer that must be a refusal."""
        status, answer = await self.call(method, path, key, body)
        assert status >= 400, answer
        assert set(answer) == {"error"}
        assert set(answer["error"]) == {"code", "message", "hint"}
        return status, answer["error"]["code"], answer["error"]["message"]


@asynccontextmanager
async def replica(
    broker: MemoryBroker, folder: Path, clock: HandClock, *, quotas: Quotas = QUOTAS, **told: Any
) -> AsyncIterator[Api]:
    """A coordinator's API on a broker that others may share; `told`: fields of `HubInfo`."""
    bus = MemoryBus(broker)
    info = HubInfo(
        name="test hub", instance="one", bus_url="nats://bus.example.org:4222",
        region_urls={"eu": "tls://leaf.eu.example.org:4222"}, **told,
    )  # fmt: skip
    hub = Hub.on(bus, DirectoryStore(folder), clock, credentials=FakeCredentials(), info=info, quotas=quotas)
    tasks = [asyncio.create_task(watch) for watch in hub.watches().values()]
    await hub.keys.ready.wait()
    try:
        server = TestServer(application(hub, ROUTES))
        async with TestClient(server, cookie_jar=DummyCookieJar()) as client:
            yield Api(hub, client, clock)
    finally:
        hub.stopping.set()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await bus.close()


@asynccontextmanager
async def registry_on(broker: MemoryBroker, folder: Path, clock: HandClock) -> AsyncIterator[Registry]:
    """The real model registry on a bus and a store that others share."""
    async with AsyncExitStack() as stack:
        bus = MemoryBus(broker)
        stack.push_async_callback(bus.close)
        made = Registry(bus, DirectoryStore(folder), SigningKey.create(), clock)
        service = RegistryService(bus, made, clock, sweep_after=3600, link_for=timedelta(hours=1))
        stopping, ready = asyncio.Event(), asyncio.Event()
        running = asyncio.create_task(service.run(stopping, on_ready=ready.set))
        await ready.wait()
        yield made
        stopping.set()
        await running


class Site:
    """A site with fresh keys."""

    def __init__(self) -> None:
        self.signing, self.bus = SigningKey.create(), KeyPair.create(KeyKind.USER)

    @property
    def public_key(self) -> str:
        return base64.b64encode(self.signing.public_bytes).decode()

    async def body(self, api: Any, token: str, **changes: Any) -> dict[str, Any]:
        """What it sends to join, in answer to a new challenge."""
        challenge = (await api.ok("POST", "/v1/join/challenge", body={"token": token}))["challenge"]
        return self.proof(api, token, challenge) | changes

    def proof(self, api: Any, token: str, challenge: str) -> dict[str, Any]:
        """What it sends in answer to a challenge."""
        return proved(token, challenge, self.signing, self.bus, api.clock.now())
