"""A server that lets a TLS handshake hang, as one does at which thousands arrive at once, keeps no client for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from certificates import ThrowawayCa
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.subjects import Role
from hanse_fabric.tls import client_context
from hanse_operations.bus.server import ServerTls
from servers import NatsServer

HUNG = 1
SLOW_S = 3.0
"""More than a nats-server itself gives a TLS handshake, and less than a client does."""


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()


async def test_who_is_left_in_a_handshake_tries_again(tmp_path: Path, new_nats: Callable[..., NatsServer]) -> None:
    ca = ThrowawayCa(tmp_path)
    pair = ca.issue("server")
    server = new_nats(tls=ServerTls(pair.cert, pair.key), bare=True)
    came: list[asyncio.StreamWriter] = []
    tasks: list[asyncio.Task[None]] = []

    async def between(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The server's greeting reaches everybody; of the first, nothing reaches the server."""
        came.append(writer)
        theirs, ours = await asyncio.open_connection("127.0.0.1", server.port)
        if len(came) <= HUNG:
            writer.write(await theirs.readline())
            return
        tasks.extend(asyncio.create_task(_pass_on(*ends)) for ends in ((theirs, writer), (reader, ours)))

    proxy = await asyncio.start_server(between, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
    creds = server.authority.service_credentials(Role.COORDINATOR)
    bus = await NatsBus.connect(
        f"tls://127.0.0.1:{port}", "coordinator", creds=creds, tls=client_context(ca.cert), timeout=60
    )
    assert len(came) == HUNG + 1
    assert await bus.ready()
    await bus.close()
    proxy.close()
    for task in tasks:
        task.cancel()


async def test_a_handshake_that_the_busy_server_takes_long_for_is_not_begun_anew(
    tmp_path: Path, new_nats: Callable[..., NatsServer]
) -> None:
    ca = ThrowawayCa(tmp_path)
    pair = ca.issue("server")
    server = new_nats(tls=ServerTls(pair.cert, pair.key), bare=True)
    came: list[asyncio.StreamWriter] = []
    tasks: list[asyncio.Task[None]] = []

    async def between(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """What the client says first reaches the server late, as where it waits for a processor."""
        came.append(writer)
        theirs, ours = await asyncio.open_connection("127.0.0.1", server.port)
        tasks.append(asyncio.create_task(_pass_on(theirs, writer)))
        first = await reader.read(1 << 16)
        await asyncio.sleep(SLOW_S)
        ours.write(first)
        tasks.append(asyncio.create_task(_pass_on(reader, ours)))

    proxy = await asyncio.start_server(between, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
    creds = server.authority.service_credentials(Role.COORDINATOR)
    bus = await NatsBus.connect(
        f"tls://127.0.0.1:{port}", "coordinator", creds=creds, tls=client_context(ca.cert), timeout=60
    )
    assert len(came) == 1
    assert await bus.ready()
    await bus.close()
    proxy.close()
    for task in tasks:
        task.cancel()
