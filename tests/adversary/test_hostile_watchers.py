"""An owner who watches runs, as many as there is room for, and does not read what is told: nobody else is kept out, and
what waits for a slow reader stays with the bus (a real server's), and does not fill the coordinator's memory.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer

from clocks import HandClock
from hanse_coordinator.api.door import HttpLimits, UnderWay
from hanse_coordinator.api.server import application
from hanse_coordinator.api.table import ROUTES
from hanse_fabric.bus import follower as following
from hanse_fabric.bus.memory import MemoryBroker
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.bus.port import Record
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.names import new_run_id
from hanse_fabric.queue import stream_of
from hanse_fabric.subjects import EVENT, Role
from hub_api import JOB, SCHEMA, START, replica
from servers import NatsServer

EVENTS, SIZE, ROOM = 300, 32 << 10, 1 << 20


async def told(bus: NatsBus) -> str:
    """A run of which much was told."""
    subject = EVENT.of(project="triage", run=new_run_id())
    await asyncio.gather(*(bus.publish(subject, b"%08d" % number + bytes(SIZE)) for number in range(EVENTS)))
    return subject


def waiting(bus: NatsBus) -> int:
    """Bytes that wait in memory for those who follow."""
    return sum(
        len(item.data)
        for each in bus._keeper._followers
        for item in each._queue._queue  # type: ignore[attr-defined]
        if isinstance(item, Record)
    )


async def read_slowly(bus: NatsBus) -> tuple[int, list[bytes]]:
    """What waits in memory for who has read one record and pauses, and all records in the order in which they come."""
    subject = await told(bus)
    async with asyncio.timeout(60), bus.follow(stream_of(EVENT), subject) as records:
        found, before = [(await anext(records)).data[:8]], -1
        while (now := waiting(bus)) != before:  # until nothing more comes
            before = now
            await asyncio.sleep(0.5)
        while len(found) < EVENTS:
            found.append((await anext(records)).data[:8])
        return now, found


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "MOST_WAITING", ROOM)


@pytest.mark.usefixtures("little_room")
async def test_what_a_slow_reader_has_not_read_stays_with_the_bus_and_nothing_is_lost(nats_server: NatsServer) -> None:
    bus = await nats_server.connect(Role.COORDINATOR)
    held, found = await read_slowly(bus)
    assert held <= ROOM + SIZE + 8
    assert sorted(found) == [b"%08d" % number for number in range(EVENTS)]
    await bus.close()


@pytest.mark.control("test_what_a_slow_reader_has_not_read_stays_with_the_bus_and_nothing_is_lost")
async def test_control_where_any_number_of_bytes_waits_all_of_them_are_in_memory(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "MOST_WAITING", 1 << 40)
    bus = await nats_server.connect(Role.COORDINATOR)
    held, _ = await read_slowly(bus)
    assert held >= (EVENTS - 1) * SIZE
    await bus.close()


@pytest.mark.usefixtures("little_room")
@pytest.mark.no_attack("an honest reader of much")
async def test_who_reads_all_at_once_has_all_of_it(nats_server: NatsServer) -> None:
    bus = await nats_server.connect(Role.COORDINATOR)
    subject = await told(bus)
    assert len(await bus.snapshot(stream_of(EVENT), subject, timeout=60)) == EVENTS
    await bus.close()


async def watching(folder: Path) -> tuple[list[int], int]:
    """The statuses of as many watches of one key, and of one of another's then."""
    async with AsyncExitStack() as stack, asyncio.timeout(30):
        api = await stack.enter_async_context(replica(MemoryBroker(), folder, HandClock(START)))
        object.__setattr__(api.hub, "clock", SYSTEM_CLOCK)
        bad, good = await api.make_key("owner"), await api.make_key("owner")
        await api.ok("POST", "/v1/projects", good, {"name": "alpha", "schema": SCHEMA})
        run = (await api.ok("POST", "/v1/projects/alpha/runs", good, {"job": JOB}))["run"]
        server = TestServer(application(api.hub, ROUTES, HttpLimits(watched=3)))
        await stack.enter_async_context(server)
        session = await stack.enter_async_context(ClientSession())
        url = server.make_url(f"/v1/projects/alpha/runs/{run}/events")

        async def watch(key: str) -> int:
            answer = await session.get(url, headers={"Authorization": f"Bearer {key}"})
            stack.callback(answer.close)
            return answer.status

        found = [await watch(bad) for _ in range(5)]
        api.hub.stopping.set()  # streams end
        return found, await watch(good)


async def test_an_owner_watches_so_many_runs_at_once_and_takes_no_place_of_another(tmp_path: Path) -> None:
    assert await watching(tmp_path) == ([200, 200, 200, 429, 429], 200)


@pytest.mark.control("test_an_owner_watches_so_many_runs_at_once_and_takes_no_place_of_another")
async def test_control_where_watches_are_not_counted_one_key_has_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = UnderWay.__init__

    def uncounted(made: UnderWay, what: str, _most: int) -> None:
        counted(made, what, 10_000)

    monkeypatch.setattr(UnderWay, "__init__", uncounted)
    assert (await watching(tmp_path))[0] == [200] * 5
