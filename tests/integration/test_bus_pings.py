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


async def test_an_answer_for_which_nobody_waits_any_more_does_not_end_the_reading(nats_server: NatsServer) -> None:
    connection = await connected(nats_server)
    client = connection.client
    asking = asyncio.create_task(client.flush(timeout=30))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    behind = asyncio.create_task(client.flush(timeout=30))  # its answer comes behind that one
    await asyncio.wait_for(behind, 30)
    assert client._reading_task is not None
    assert not client._reading_task.done()
    await connection.close()


async def test_who_ends_while_a_subscription_is_confirmed_leaves_none(nats_server: NatsServer) -> None:
    connection = await connected(nats_server)
    before = dict(connection.client._subs)
    subscribing = asyncio.create_task(connection.subscribe(SUBJECT, ignored))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    subscribing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await subscribing
    assert connection.client._subs == before
    await connection.close()
