"""Connections that a test of every bus is given: to the one inside the process, and to NATS."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator

import pytest

from hanse.embedded.hub import EmbeddedHub
from hanse.embedded.nursery import SERVICES
from hanse_fabric.bus.memory import MemoryBroker, MemoryBus
from hanse_fabric.bus.port import Bus
from hanse_fabric.subjects import Role
from servers import Connect, NatsServer


@pytest.fixture(params=["memory", "nats"])
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Connect]:
    """Connections of services, closed after the test."""
    open_buses: list[Bus] = []
    broker = MemoryBroker()
    server: NatsServer | None = request.getfixturevalue("nats_server") if request.param == "nats" else None

    async def new(role: Role) -> Bus:
        bus: Bus = MemoryBus(broker) if server is None else await server.connect(role)
        open_buses.append(bus)
        return bus

    yield new
    for bus in open_buses:
        await bus.close()


@pytest.fixture
async def bus(connect: Connect) -> Bus:
    return await connect(Role.COORDINATOR)


@pytest.fixture
def project() -> str:
    """A name that no other test uses: the server is shared."""
    return f"p{secrets.token_hex(6)}"


@pytest.fixture(autouse=True, scope="module")
def services_of_each_hub() -> Iterator[None]:
    """Hubs have a nursery of their own here, as users' have, whichever tests ran before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EmbeddedHub, "services_from", SERVICES)
        yield
