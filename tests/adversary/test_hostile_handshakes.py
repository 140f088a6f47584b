"""A stranger who connects to a server of HTTPS and says nothing: such a connection is no HTTP's yet, and is counted by
nobody. And one who holds more connections than the server's process may have files.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from adversary.test_hostile_connections import WHOLE, connected
from certificates import ThrowawayCa
from hanse_fabric import tls
from hanse_fabric.greetings import Greetings
from hanse_fabric.http_door import DoorRunner

MOST, TRIES = 16, 40


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[int, ssl.SSLContext]]:
    """The port of a server of HTTPS that takes few connections, and who is believed there."""
    ca = ThrowawayCa(folder)
    pair = ca.issue("hub")

    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await request.read(), headers={"Secure": str(request.secure)})

    app = web.Application()
    app.router.add_route("*", "/{any:.*}", echo)
    runner = DoorRunner(app, most=MOST, first_s=60, tls=tls.server_context(pair.cert, pair.key), shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1], tls.client_context(ca.cert)
    finally:
        await runner.cleanup()


async def held(folder: Path, begin: bytes) -> tuple[int, bytes]:
    """How many connections a stranger holds that are no TLS yet, and what somebody is answered who comes then."""
    async with asyncio.timeout(60), served(folder) as (port, context):
        all_of_them = [await connected(port) for _ in range(TRIES)]
        for _, writer in all_of_them:
            writer.write(begin)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(WHOLE)
        answer = await reader.readline()
        ended = [asyncio.ensure_future(reader.read()) for reader, _ in all_of_them]
        closed, still = await asyncio.wait(ended, timeout=0.5)
        for each in still:
            each.cancel()
        await asyncio.wait(ended)
        for _, each_writer in [*all_of_them, (reader, writer)]:
            each_writer.transport.abort()
        return TRIES - len(closed), answer


@pytest.mark.parametrize("begin", [b"", b"\x16\x03\x01\x02\x00\x01"])
async def test_handshakes_that_nobody_ends_are_few(tmp_path: Path, begin: bytes) -> None:
    open_still, answer = await held(tmp_path, begin)
    assert open_still <= MOST // 4
    assert b"200 OK" in answer


@pytest.mark.control("test_handshakes_that_nobody_ends_are_few")
async def test_control_where_handshakes_are_not_counted_they_are_as_many_as_the_stranger_likes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Greetings.__init__

    def uncounted(greetings: Greetings, *what: object, most: int, within_s: float) -> None:
        made(greetings, *what, most=1_000_000, within_s=within_s)  # type: ignore[arg-type]

    monkeypatch.setattr(Greetings, "__init__", uncounted)
    assert (await held(tmp_path, b""))[0] == TRIES


@pytest.mark.no_attack("honest clients")
async def test_requests_that_come_right_behind_the_handshake_are_answered(tmp_path: Path) -> None:
    async def told(port: int, context: ssl.SSLContext) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        body = bytes(range(256)) * 1000
        head = f"POST / HTTP/1.1\r\nHost: hub\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        answer = await reader.read()
        writer.close()
        assert b"Secure: True" in answer
        return answer[-len(body) :]

    async with asyncio.timeout(60), served(tmp_path) as (port, context):
        for _ in range(5):
            answers = await asyncio.gather(*(told(port, context) for _ in range(4)))
            assert set(answers) == {bytes(range(256)) * 1000}


FILES = 64
SERVER = """
import asyncio, resource, sys
from aiohttp import web
from hanse_fabric import http_door

async def main():
    if sys.argv[1] == "without":
        http_door._affordable = lambda most: most
    resource.setrlimit(resource.RLIMIT_NOFILE, (48, %d))
    app = web.Application()
    app.router.add_get("/{any:.*}", lambda _: asyncio.sleep(0, web.Response(text="here")))
    runner = http_door.DoorRunner(app, most=4096, first_s=60, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.sleep(300)

asyncio.run(main())
"""


async def beside_all_files(which: str, patience: float) -> bytes:
    """What somebody is answered by a server of whose connections a stranger holds as many as its process may have
    files."""
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER % FILES, which, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert server.stdout is not None
    try:
        port = int(await server.stdout.readline())
        connections = [await connected(port) for _ in range(2 * FILES)]
        reader, writer = await connected(port)
        writer.write(WHOLE)
        answer = await asyncio.wait_for(reader.readline(), patience)
        for _, each in [*connections, (reader, writer)]:
            each.transport.abort()
        return answer
    finally:
        server.kill()
        await server.wait()


async def test_who_holds_as_many_connections_as_a_process_may_have_files_keeps_nobody_out() -> None:
    assert b"200 OK" in await beside_all_files("with", 30)


@pytest.mark.control("test_who_holds_as_many_connections_as_a_process_may_have_files_keeps_nobody_out")
async def test_control_where_files_are_not_looked_at_nobody_else_is_let_in() -> None:
    with pytest.raises(TimeoutError):
        await beside_all_files("without", 2)
