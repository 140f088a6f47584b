"""Anyone outside: half requests, half bodies, many connections, and what proxies say of addresses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_network
from typing import Any

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import make_mocked_request

from hanse_coordinator.api.door import DoorRunner, HttpLimits, address_of
from hanse_coordinator.api.server import application
from hanse_coordinator.api.table import ROUTES
from hanse_fabric.clock import SYSTEM_CLOCK
from hub_api import SCHEMA

WHOLE = b"GET /v1/hub HTTP/1.1\r\nHost: hub\r\n\r\n"
HALF_BODY = b"POST /v1/join HTTP/1.1\r\nHost: hub\r\nContent-Length: 200000\r\n\r\n{"


@asynccontextmanager
async def door(api: Any, **limits: Any) -> AsyncIterator[int]:
    """The port of the API behind a door with these limits, in the machine's time."""
    object.__setattr__(api.hub, "clock", SYSTEM_CLOCK)
    known = HttpLimits(**limits)
    runner = DoorRunner(application(api.hub, ROUTES, known), known, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def said_to(port: int, data: bytes) -> bytes:
    """All that is answered until the server hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("begin", [b"", b"GET /v1/hub HTTP/1.1\r\nHost:", WHOLE[:-2]])
async def test_a_connection_that_brings_no_whole_request_is_closed(api: Any, begin: bytes) -> None:
    async with asyncio.timeout(20), door(api, header_s=0.2) as port:
        assert await said_to(port, begin) == b""


async def test_a_connection_that_has_brought_one_stays_open_for_the_next(api: Any) -> None:
    async with asyncio.timeout(20), door(api, header_s=0.2) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            writer.write(WHOLE)
            assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
            await reader.readuntil(b"}")
            await asyncio.sleep(0.3)
            await drained(reader)
        writer.close()


async def drained(reader: asyncio.StreamReader) -> None:
    """Read what has come already."""
    if reader._buffer:  # type: ignore[attr-defined]
        await reader.read(1 << 16)


async def test_a_body_that_does_not_come_is_given_up(api: Any) -> None:
    async with asyncio.timeout(20), door(api, body_s=0.2) as port:
        assert b'"code":"timeout"' in await said_to(port, HALF_BODY)


async def test_half_bodies_without_a_key_keep_nobody_out_who_has_one(api: Any) -> None:
    owner = await api.make_key("operator")
    async with asyncio.timeout(20), door(api, bodies=2) as port, ClientSession() as session:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for _, writer in held:
            writer.write(HALF_BODY)
        refused = 0
        while refused != 503:
            async with session.post(f"http://127.0.0.1:{port}/v1/join", json={}) as answer:
                refused = answer.status
        url = f"http://127.0.0.1:{port}/v1/projects"
        body = {"name": "alpha", "schema": SCHEMA}
        async with session.post(url, json=body, headers={"Authorization": f"Bearer {owner}"}) as answer:
            assert answer.status == 201
        for _, writer in held:
            writer.close()


async def test_one_connection_too_many_is_closed_and_the_others_are_answered(api: Any) -> None:
    async with asyncio.timeout(20), door(api, connections=2) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(WHOLE)
        await reader.readuntil(b"\r\n\r\n")
        _, second = await asyncio.open_connection("127.0.0.1", port)
        assert await said_to(port, b"") == b""
        await drained(reader)
        writer.write(WHOLE)
        assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        writer.close()
        second.close()


@pytest.mark.parametrize(
    ("peer", "forwarded", "found"),
    [
        ("198.51.100.7", "203.0.113.9", "198.51.100.7"),
        ("10.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", "192.0.2.1, 203.0.113.9, 10.0.0.2", "203.0.113.9"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "nonsense", "nonsense"),
    ],
)
def test_the_word_of_configured_proxies_alone_is_taken_for_an_address(peer: str, forwarded: str, found: str) -> None:
    headers = {"X-Forwarded-For": forwarded} if forwarded else {}
    http = make_mocked_request("GET", "/", headers=headers).clone(remote=peer)
    assert address_of(http, [ip_network("10.0.0.0/8")]) == found
