"""Somebody on the line between sites and hub, who reads and keeps every byte that passes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from certificates import ThrowawayCa
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.subjects import JOURNAL, Role
from hanse_fabric.tls import client_context
from hanse_operations.bus.server import ServerTls
from servers import NatsServer

SECRET = b"what a site says, and nobody on the line may read"
SUBJECT = JOURNAL.of(project="triage", run="a" * 12)


@dataclass
class Line:
    """A wire to a server that somebody listens to."""

    port: int
    heard: list[bytes] = field(default_factory=list)

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what comes from a client, and what is answered."""
        theirs, mine = await asyncio.open_connection("127.0.0.1", self.port)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._copy(reader, mine))
            group.create_task(self._copy(theirs, writer))

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            self.heard.append(data)
            target.write(data)
            await target.drain()
        target.close()


@asynccontextmanager
async def tapped(server: NatsServer) -> AsyncIterator[tuple[Line, int]]:
    """(the line, the port of its near end)."""
    line = Line(server.port)
    listening = await asyncio.start_server(line.carry, "127.0.0.1", 0)
    async with listening:
        yield line, listening.sockets[0].getsockname()[1]


async def said_over(server: NatsServer, scheme: str, **tls: Any) -> bytes:
    """All that passed while a message was published and read."""
    async with tapped(server) as (line, port):
        creds = server.authority.service_credentials(Role.COORDINATOR)
        bus = await NatsBus.connect(f"{scheme}://127.0.0.1:{port}", "coordinator", creds=creds, **tls)
        assert JOURNAL.stream is not None
        await bus.publish(SUBJECT, SECRET)
        record = await bus.last(JOURNAL.stream, SUBJECT)
        assert record is not None
        assert record.data == SECRET
        await bus.close()
        return b"".join(line.heard)


async def test_with_tls_whoever_is_on_the_line_reads_no_message(
    new_nats: Callable[..., NatsServer], tmp_path: Path
) -> None:
    ca = ThrowawayCa(tmp_path)
    pair = ca.issue("server")
    server = new_nats(tls=ServerTls(pair.cert, pair.key), bare=True)
    await server.provision(client_context(ca.cert))
    heard = await said_over(server, "tls", ca=ca.cert)
    assert heard
    assert SECRET not in heard
    assert SUBJECT.encode() not in heard


@pytest.mark.control("test_with_tls_whoever_is_on_the_line_reads_no_message")
async def test_control_without_tls_the_line_has_the_message(nats_server: NatsServer) -> None:
    heard = await said_over(nats_server, "nats")
    assert SECRET in heard
    assert SUBJECT.encode() in heard
