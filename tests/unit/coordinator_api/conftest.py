"""A hub's API with its keys, and the real model registry beside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from clocks import HandClock
from hanse_fabric.bus.memory import MemoryBroker, MemoryBus
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.store.directory import DirectoryStore
from hanse_model_registry.registry import Registry
from hanse_model_registry.service import RegistryService
from hub_api import SCHEMA, START, Api, replica


@pytest.fixture
def clock() -> HandClock:
    return HandClock(START)


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
async def api(broker: MemoryBroker, clock: HandClock, tmp_path: Path) -> AsyncIterator[Api]:
    async with replica(broker, tmp_path / "store", clock) as one:
        yield one


@pytest.fixture
async def other_api(broker: MemoryBroker, clock: HandClock, tmp_path: Path) -> AsyncIterator[Api]:
    """A second replica of the same hub."""
    async with replica(broker, tmp_path / "store", clock) as two:
        yield two


@pytest.fixture
async def registry(broker: MemoryBroker, clock: HandClock, tmp_path: Path) -> AsyncIterator[Registry]:
    """The real model registry on the same bus and store."""
    async with AsyncExitStack() as stack:
        bus = MemoryBus(broker)
        stack.push_async_callback(bus.close)
        made = Registry(bus, DirectoryStore(tmp_path / "store"), SigningKey.create(), clock)
        service = RegistryService(bus, made, clock, sweep_after=3600, link_for=timedelta(hours=1))
        stopping, ready = asyncio.Event(), asyncio.Event()
        running = asyncio.create_task(service.run(stopping, on_ready=ready.set))
        await ready.wait()
        yield made
        stopping.set()
        await running


@pytest.fixture
async def owner(api: Api) -> str:
    """A key of an owner of all projects; the project `alpha` is there."""
    key = await api.make_key("owner")
    await api.ok("POST", "/v1/projects", key, {"name": "alpha", "schema": SCHEMA})
    return key


@pytest.fixture
async def operator(api: Api) -> str:
    return await api.make_key("operator")
