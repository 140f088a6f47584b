"""Whole runs on a real nats-server, each actor with the credentials of its role; the server killed in the middle."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hanse_fabric.bus.port import Bus
from hanse_fabric.subjects import Role
from servers import NatsServer

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "coordinator_workflow"))

from workflow_hub import PROJECT, Hub, at_work, job_of


class RealHub(Hub):
    """The hub of the unit tests, on a server."""

    def __init__(self, folder: Path, server: NatsServer, bus: Bus) -> None:
        super().__init__(folder, bus=bus)
        self._server = server
        self.connections = [bus]

    async def connect(self, role: Role, participant: str = "") -> Bus:
        if role is Role.PARTICIPANT:
            bus, _ = await self._server.enrol(PROJECT, participant)
        else:
            bus = await self._server.connect(role)
        self.connections.append(bus)
        return bus


@pytest.fixture
async def hub(mortal_nats: NatsServer, tmp_path: Path) -> AsyncIterator[RealHub]:
    hub = RealHub(tmp_path, mortal_nats, await mortal_nats.connect(Role.COORDINATOR))
    yield hub
    for bus in hub.connections:
        await bus.close()


async def test_a_run_completes_with_the_rights_of_each_role_and_no_more(hub: RealHub) -> None:
    async with hub.running("north", "south"):
        async with at_work(hub.supervisor(await hub.connect(Role.COORDINATOR))):
            await hub.submit(job_of(rounds=20))
            record = await hub.ended()
        assert (record.state, record.round, record.reason) == ("completed", 20, "")
        finished = [event.at for event in await hub.events("round-finished")]
        seconds = [(b - a).total_seconds() for a, b in itertools.pairwise(finished)]
        print(f"median round: {statistics.median(seconds) * 1000:.1f} ms, longest {max(seconds) * 1000:.1f} ms")


async def test_the_server_killed_within_a_run_costs_only_time(hub: RealHub, mortal_nats: NatsServer) -> None:
    async with hub.running("north", "south"):
        async with at_work(hub.supervisor(await hub.connect(Role.COORDINATOR))):
            await hub.submit(job_of(rounds=30))
            for number in (5, 12, 20):
                await hub.until(lambda record, number=number: record.round >= number)  # type: ignore[misc]
                await mortal_nats.restart()
            record = await hub.ended()
        assert (record.state, record.round) == ("completed", 30)
        assert all(set(site.done.values()) == {1} for site in hub.sites.values())


async def test_a_coordinator_stopped_within_a_run_is_succeeded_by_another(hub: RealHub) -> None:
    async with hub.running("north", "south"):
        async with at_work(hub.supervisor(await hub.connect(Role.COORDINATOR), instance="one")):
            await hub.submit(job_of(rounds=30))
            await hub.until(lambda record: record.round >= 5)
        async with at_work(hub.supervisor(await hub.connect(Role.COORDINATOR), instance="two")):
            assert (await hub.ended()).state == "completed"
        assert all(set(site.done.values()) == {1} for site in hub.sites.values())


async def test_fifty_participants_on_connections_of_their_own_finish_their_rounds(hub: RealHub) -> None:
    names = [f"site-{index:03}" for index in range(50)]
    async with hub.running(*names), at_work(hub.supervisor(await hub.connect(Role.COORDINATOR))):
        await hub.submit(job_of(rounds=20, evaluate={"every": 0}))
        async with asyncio.timeout(60):
            assert (await hub.ended()).state == "completed"
