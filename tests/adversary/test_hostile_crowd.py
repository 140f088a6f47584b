"""A site opens connections by the thousand, by its own good token, on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from nats.aio.client import Client

from hanse_fabric.bus import crowding
from hanse_fabric.bus.crowding import MOST_CONNECTIONS
from hanse_fabric.bus.jwt import credentials
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.bus.plain import plain_client
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.subjects import DOORS, Door, Role
from servers import NatsServer

CROWD = 120
WITHIN_S = 60


class Crowd:
    """A bad site's connections, and a good site's."""

    def __init__(self, server: NatsServer, stack: AsyncExitStack) -> None:
        self.server, self._stack = server, stack
        key = KeyPair.create(KeyKind.USER)
        self._creds = credentials(server.authority.participant_jwt("p", "bad", key.public), key)
        self.clients: list[Client] = []

    async def grow(self, count: int = CROWD) -> None:
        async def one() -> None:
            client = await plain_client(self.server.url, self._creds, connect_timeout=WITHIN_S)
            self._stack.push_async_callback(client.close)
            self.clients.append(client)

        for _ in range(count // 20):
            await asyncio.gather(*(one() for _ in range(20)))

    def there(self) -> int:
        return sum(client.is_connected for client in self.clients)

    async def until_few(self) -> None:
        async with asyncio.timeout(WITHIN_S):
            while self.there() > MOST_CONNECTIONS:  # noqa: ASYNC110 - clients tell of their end by their state
                await asyncio.sleep(0.05)

    def counted(self) -> None:
        """As a coordinator does."""
        running = asyncio.create_task(
            self.server.authority.keep_few_connections(SYSTEM_CLOCK, url=self.server.url), name="counting"
        )

        async def stop() -> None:
            running.cancel()
            await asyncio.wait({running})

        self._stack.push_async_callback(stop)


@pytest.fixture
async def crowd(mortal_nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Crowd]:
    monkeypatch.setattr(crowding, "_PAGE", CROWD // 2)  # more than a server tells of in one answer
    async with AsyncExitStack() as stack:
        yield Crowd(mortal_nats, stack)


async def _echo(_: str, data: bytes) -> bytes:
    return data


async def _works(crowd: Crowd, good: Any) -> None:
    """Its request is answered, on the connection that it had."""
    door = DOORS[Door.RESULT].of(region="hub", project="p", participant="good")
    assert await good.request(door, b"x", timeout=WITHIN_S) == b"x"
    assert good._connection.generation == 0


@pytest.mark.parametrize("before", [False, True], ids=["while counted", "before it is counted"])
async def test_a_site_keeps_few_of_its_connections_and_the_others_keep_theirs(
    crowd: Crowd, before: bool, caplog: pytest.LogCaptureFixture
) -> None:
    hub = await crowd.server.connect(Role.COORDINATOR)
    await hub.serve(DOORS[Door.RESULT].wildcard(), _echo, group="g")
    good, _ = await crowd.server.enrol("p", "good")
    if before:
        await crowd.grow()
    crowd.counted()
    if not before:
        await crowd.grow()
    await crowd.until_few()
    await _works(crowd, good)
    assert "project:p, site:bad" in caplog.text
    assert hub._connection.generation == 0
    await asyncio.to_thread(crowd.server.kill)
    await asyncio.to_thread(crowd.server.start)
    crowd.clients.clear()
    await crowd.grow()  # where the server was away, it is counted on
    await crowd.until_few()
    for bus in (good, hub):
        await bus.close()


@pytest.mark.no_attack("an honest site on a bad line")
async def test_a_site_that_comes_and_goes_many_times_keeps_its_connection(crowd: Crowd) -> None:
    crowd.counted()
    for _ in range(2 * MOST_CONNECTIONS):
        await crowd.grow(20)
        for client in crowd.clients[-10:]:
            await client.close()
        for client in crowd.clients:
            await client.close()
        crowd.clients.clear()
    await crowd.grow(20)
    await crowd.until_few()
    await asyncio.sleep(1)
    assert crowd.there() == MOST_CONNECTIONS, "no more are ended than are too many"


@pytest.mark.control("test_a_site_keeps_few_of_its_connections_and_the_others_keep_theirs")
async def test_control_where_nobody_counts_a_site_has_as_many_as_it_likes(crowd: Crowd) -> None:
    await crowd.grow()
    await asyncio.sleep(1)
    assert crowd.there() == CROWD


@pytest.mark.parametrize("after", range(0, 40, 4))
@pytest.mark.no_attack("the coordinator stops")
async def test_who_counts_ends_whenever_it_is_told_to(nats_server: NatsServer, after: int) -> None:
    """Also while it connects, or asks; `after` so many turns of the loop that had something to do."""
    running = asyncio.create_task(nats_server.authority.keep_few_connections(SYSTEM_CLOCK, url=nats_server.url))
    for _ in range(after):
        await asyncio.sleep(0.002)
    running.cancel()
    done, _ = await asyncio.wait({running}, timeout=WITHIN_S)
    assert done
