"""A ping tells what became of the commands before it: it goes behind them, and its answer is of this connection."""

from __future__ import annotations

import asyncio

import pytest
from nats.aio.msg import Msg

from hanse_fabric.bus.connection import Connection
from hanse_fabric.subjects import TELL, Role
from servers import NatsServer

SUBJECT = TELL.of(region="hub", project="p", participant="north")


async def connected(server: NatsServer) -> Connection:
    return (await server.connect(Role.COORDINATOR))._connection


async def ignored(_message: Msg) -> None: ...


async def test_a_ping_goes_out_behind_the_commands_before_it_and_with_them(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = await connected(nats_server)
    transport = connection.client._transport
    written: list[bytes] = []
    assert transport is not None
    one, many = transport.write, transport.writelines

    def write(data: bytes) -> None:
        written.append(data)
        one(data)

    def writelines(lines: list[bytes]) -> None:
        written.append(b"".join(lines))
        many(lines)

    monkeypatch.setattr(transport, "write", write)
    monkeypatch.setattr(transport, "writelines", writelines)
    await connection.client.subscribe(SUBJECT, cb=ignored)
    await connection.client.flush(timeout=30)
    [together] = written
    assert together.startswith(b"SUB ")
    assert together.endswith(b"\r\nPING\r\n")
    await connection.close()


async def test_a_ping_that_a_lost_connection_did_not_send_has_no_answer_in_the_next_one(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = await connected(nats_server)
    client, back, answers = connection.client, asyncio.Event(), 0
    process = client._process_pong

    async def counted() -> None:
        nonlocal answers
        answers += 1
        await process()

    monkeypatch.setattr(client, "_process_pong", counted)
    connection.on_reconnect.append(back.set)
    await client._send_command(b"PING\r\n")  # and the connection breaks before it is written
    await client.force_reconnect()
    await asyncio.wait_for(back.wait(), 30)
    for _ in range(2):
        await client.flush(timeout=30)
    assert answers == 3  # of the connecting, and of these
    await connection.close()
