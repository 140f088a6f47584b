"""A server that lets a TLS handshake hang, as one does at which thousands arrive at once, keeps no client for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from certificates import ThrowawayCa
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.subjects import Role
from hanse_fabric.tls import client_context
from hanse_operations.bus.server import ServerTls
from servers import NatsServer

HUNG = 1
SLOW_S = 3.0
"""More than a nats-server itself gives a TLS handshake, and less than a client does."""
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Passing = Coroutine[Any, Any, None]
Line = Callable[[int, Ends, Ends], Awaitable[list[Passing]]]
"""What is passed on of a connection of this number, down from the server and up to it."""


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()


async def connections_of(folder: Path, new_nats: Callable[..., NatsServer], line: Line) -> int:
    """How many connections a client needs to a server with TLS that it reaches by a line, until it is ready."""
    ca = ThrowawayCa(folder)
    pair = ca.issue("server")
    server = new_nats(tls=ServerTls(pair.cert, pair.key), bare=True)
    tasks: list[asyncio.Task[None]] = []
    came = 0

    async def between(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal came
        came += 1
        theirs, ours = await asyncio.open_connection("127.0.0.1", server.port)
        tasks.extend(asyncio.create_task(passing) for passing in await line(came, (theirs, writer), (reader, ours)))

    proxy = await asyncio.start_server(between, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
    creds = server.authority.service_credentials(Role.COORDINATOR)
    bus = await NatsBus.connect(
        f"tls://127.0.0.1:{port}", "coordinator", creds=creds, tls=client_context(ca.cert), timeout=60
    )
    needed = came
    assert await bus.ready()
    await bus.close()
    proxy.close()
    for task in tasks:
        task.cancel()
    return needed


async def test_who_is_left_in_a_handshake_tries_again(tmp_path: Path, new_nats: Callable[..., NatsServer]) -> None:
    async def hangs(number: int, down: Ends, up: Ends) -> list[Passing]:
        """The server's greeting reaches everybody; of the first, nothing reaches the server."""
        if number <= HUNG:
            down[1].write(await down[0].readline())
            return []
        return [_pass_on(*down), _pass_on(*up)]

    assert await connections_of(tmp_path, new_nats, hangs) == HUNG + 1


async def test_a_handshake_that_the_busy_server_takes_long_for_is_not_begun_anew(
    tmp_path: Path, new_nats: Callable[..., NatsServer]
) -> None:
    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(1 << 16)
        await asyncio.sleep(SLOW_S)
        writer.write(first)
        await _pass_on(reader, writer)

    async def slow(_number: int, down: Ends, up: Ends) -> list[Passing]:
        """What the client says first reaches the server late, as where it waits for a processor."""
        return [_pass_on(*down), late(*up)]

    assert await connections_of(tmp_path, new_nats, slow) == 1
