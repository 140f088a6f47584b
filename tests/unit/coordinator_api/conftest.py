"""A hub's API with its keys, and the real model registry beside."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clocks import HandClock
from hanse_fabric.bus.memory import MemoryBroker
from hanse_model_registry.registry import Registry
from hub_api import START, Api, registry_on, replica
from memory_disk import tmp_path, tmp_path_factory

__all__ = ["tmp_path", "tmp_path_factory"]


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
    async with registry_on(broker, tmp_path / "store", clock) as made:
        yield made


@pytest.fixture
async def owner(api: Api) -> str:
    """A key of an owner of all projects; the project `alpha` is there."""
    return await api.make_owner("alpha")


@pytest.fixture
async def operator(api: Api) -> str:
    return await api.make_key("operator")
