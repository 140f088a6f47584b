"""A stranger who holds connections: that bring nothing, that have had their answer, or whose answers he does not read.
Whoever comes then is let in all the same, at the hub and at the console.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import hanse_console.app
from clocks import HandClock
from hanse_console.proxy import ApiProxy
from hanse_coordinator.api.server import application
from hanse_coordinator.api.table import ROUTES
from hanse_fabric.bus.memory import MemoryBroker
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.http_door import Door, DoorRunner
from hub_api import START, replica

MOST = 8
WHOLE, LONG = b"GET /v1/hub HTTP/1.1\r\nHost: hub\r\n\r\n", b"GET /long HTTP/1.1\r\nHost: hub\r\n\r\n"


@asynccontextmanager
async def hub_at(folder: Path) -> AsyncIterator[int]:
    """The port of a hub that takes few connections."""
    async with replica(MemoryBroker(), folder, HandClock(START)) as api:
        object.__setattr__(api.hub, "clock", SYSTEM_CLOCK)
        app = application(api.hub, ROUTES)

        async def long(_: web.Request) -> web.Response:
            return web.Response(body=bytes(32 << 20))

        app.router.add_get("/long", long)
        runner = DoorRunner(app, most=MOST, first_s=60, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()


async def connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that takes little at once."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    return await asyncio.open_connection(sock=sock, limit=4096)


async def silent(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
    """Nothing comes."""


async def half(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(WHOLE[:-2])


async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(WHOLE)
    await reader.readuntil(b"}")


async def unread(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(LONG)
    assert b"200 OK" in await reader.readuntil(b"\r\n")


Held = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]
WAYS = (silent, half, answered, unread)


async def beside(port: int, hold: Held) -> bytes:
    """What somebody is answered who comes while all connections are held."""
    held = [await connected(port) for _ in range(MOST)]
    try:
        for each in held:
            await hold(*each)
        await asyncio.sleep(0.2)  # what they have sent has come, and what they read no more waits
        reader, writer = await connected(port)
        try:
            writer.write(WHOLE)
            return await reader.readline()
        except ConnectionError:
            return b""
        finally:
            writer.close()
    finally:
        for _, writer in held:
            writer.transport.abort()


@pytest.mark.parametrize("hold", WAYS)
async def test_connections_that_are_held_keep_nobody_out(tmp_path: Path, hold: Held) -> None:
    async with asyncio.timeout(30), hub_at(tmp_path) as port:
        assert b"200 OK" in await beside(port, hold)


@pytest.mark.parametrize("hold", WAYS)
@pytest.mark.control("test_connections_that_are_held_keep_nobody_out")
async def test_control_where_no_room_is_made_who_holds_all_connections_keeps_everybody_out(
    tmp_path: Path, hold: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Door, "_make_room", lambda *_: False)
    async with asyncio.timeout(30), hub_at(tmp_path) as port:
        assert await beside(port, hold) == b""


async def console_says(begin: bytes) -> bytes:
    """All that a console says to a request that has only begun, until it hangs up."""
    proxy = ApiProxy("http://127.0.0.1:9", None, 8, SYSTEM_CLOCK)
    runner = hanse_console.app.behind_door(hanse_console.app.application({}, proxy, "http://127.0.0.1:9"))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        reader, writer = await connected(runner.addresses[0][1])
        writer.write(begin)
        try:
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("begin", [b"", WHOLE[:-2]])
async def test_a_connection_to_the_console_that_brings_no_whole_request_is_closed(
    begin: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hanse_console.app, "_FIRST_S", 0.2)
    assert await asyncio.wait_for(console_says(begin), 30) == b""


@pytest.mark.parametrize("begin", [b"", WHOLE[:-2]])
@pytest.mark.control("test_a_connection_to_the_console_that_brings_no_whole_request_is_closed")
async def test_control_where_the_console_has_no_door_it_stays(begin: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(app: web.Application) -> web.AppRunner:
        return web.AppRunner(app, access_log=None, shutdown_timeout=0.1)

    monkeypatch.setattr(hanse_console.app, "behind_door", without)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(console_says(begin), 2)


@pytest.mark.no_attack("honest clients at work")
async def test_no_connection_is_closed_whose_request_is_worked_on(tmp_path: Path) -> None:
    going = asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        await going.wait()
        return web.Response(text="done")

    app = web.Application()
    app.router.add_get("/", slow)
    runner = DoorRunner(app, most=MOST, first_s=60, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with asyncio.timeout(30):
            held = [await connected(runner.addresses[0][1]) for _ in range(MOST)]
            for _, writer in held:
                writer.write(b"GET / HTTP/1.1\r\nHost: hub\r\n\r\n")
            await asyncio.sleep(0.2)
            reader, writer = await connected(runner.addresses[0][1])
            assert await reader.read() == b"", "one too many"
            writer.close()
            going.set()
            for reader, writer in held:
                assert b"200 OK" in await reader.readline()
                writer.close()
    finally:
        await runner.cleanup()
