"""Anyone outside: half requests, half bodies, many connections, and what proxies say of addresses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import make_mocked_request

from clocks import HandClock
from hanse_coordinator.api.door import Bodies, HttpLimits, address_of
from hanse_coordinator.api.server import application
from hanse_coordinator.api.table import ROUTES
from hanse_coordinator.auth import FailureLimiter
from hanse_fabric.bus.memory import MemoryBroker
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.http_door import Door, DoorRunner
from hanse_fabric.identity.secrets import make_api_key
from hub_api import SCHEMA, START, Api, replica

WHOLE = b"GET /v1/hub HTTP/1.1\r\nHost: hub\r\n\r\n"
HALF_BODY = b"POST /v1/join HTTP/1.1\r\nHost: hub\r\nContent-Length: 200000\r\n\r\n{"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with replica(MemoryBroker(), tmp_path, HandClock(START)) as hub:
        yield hub


@asynccontextmanager
async def door(api: Api, **limits: Any) -> AsyncIterator[int]:
    """The port of the API behind a door with these limits, in the machine's time."""
    object.__setattr__(api.hub, "clock", SYSTEM_CLOCK)
    known = HttpLimits(**limits)
    app = application(api.hub, ROUTES, known)
    runner = DoorRunner(app, most=known.connections, first_s=known.header_s, shutdown_timeout=0.1)
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
async def test_a_connection_that_brings_no_whole_request_is_closed(api: Api, begin: bytes) -> None:
    async with asyncio.timeout(20), door(api, header_s=0.2) as port:
        assert await said_to(port, begin) == b""


@pytest.mark.control("test_a_connection_that_brings_no_whole_request_is_closed")
@pytest.mark.parametrize("begin", [b"", WHOLE[:-2]])
async def test_control_where_a_first_request_is_never_due_the_connection_stays(
    api: Api, begin: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Door, "_first_request_due", lambda *_: None)
    async with door(api, header_s=0.2) as port:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(said_to(port, begin), 2)


@pytest.mark.no_attack("an honest client")
async def test_a_connection_that_has_brought_one_stays_open_for_the_next(api: Api) -> None:
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


async def test_a_body_that_does_not_come_is_given_up(api: Api) -> None:
    async with asyncio.timeout(20), door(api, body_s=0.2) as port:
        assert b'"code":"timeout"' in await said_to(port, HALF_BODY)


@pytest.mark.control("test_a_body_that_does_not_come_is_given_up")
async def test_control_where_a_body_is_awaited_for_ever_it_is_held_for_ever(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def patiently(_: Bodies, http: web.Request, _caller: str, _address: str) -> bytes:
        return await http.read()

    monkeypatch.setattr(Bodies, "read", patiently)
    async with door(api, body_s=0.2) as port:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(said_to(port, HALF_BODY), 2)


async def beside_half_bodies(api: Api) -> int:
    """What an owner with a key is answered who makes a project while all places of those without one are taken."""
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
            status = answer.status
        for _, writer in held:
            writer.close()
        return status


async def test_half_bodies_without_a_key_keep_nobody_out_who_has_one(api: Api) -> None:
    assert await beside_half_bodies(api) == 201


@pytest.mark.control("test_half_bodies_without_a_key_keep_nobody_out_who_has_one")
async def test_control_where_all_share_the_same_places_strangers_keep_owners_out(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart = Bodies._place
    monkeypatch.setattr(Bodies, "_place", lambda bodies, _caller, address: apart(bodies, "", address))
    assert await beside_half_bodies(api) == 503


async def signing_in_beside_half_bodies(folder: Path, **limits: Any) -> int:
    """What somebody at another address is answered who signs in while one address sends bodies that do not come."""
    proxies = {"proxies": (ip_network("127.0.0.0/8"),)}
    async with (
        replica(MemoryBroker(), folder, HandClock(START), **proxies) as api, asyncio.timeout(20),
        door(api, bodies=2, **limits) as port, ClientSession() as session,
    ):  # fmt: skip
        half = HALF_BODY.replace(b"\r\n", b"\r\nX-Forwarded-For: 203.0.113.66\r\n", 1)
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for _, writer in held:
            writer.write(half)
        url, body, refused = f"http://127.0.0.1:{port}/v1/session", {"name": "ada", "password": "five wards"}, 0
        while refused != 503:
            async with session.post(url, json=body, headers={"X-Forwarded-For": "203.0.113.66"}) as answer:
                refused = answer.status
        async with session.post(url, json=body, headers={"X-Forwarded-For": "198.51.100.7"}) as answer:
            status = answer.status
        for _, writer in held:
            writer.close()
        return status


async def test_half_bodies_of_one_address_keep_nobody_elsewhere_from_signing_in(tmp_path: Path) -> None:
    assert await signing_in_beside_half_bodies(tmp_path) == 401, "it was looked at"


@pytest.mark.control("test_half_bodies_of_one_address_keep_nobody_elsewhere_from_signing_in")
async def test_control_where_addresses_share_their_places_nobody_signs_in(tmp_path: Path) -> None:
    assert await signing_in_beside_half_bodies(tmp_path, strangers=2) == 503


async def test_one_connection_too_many_is_closed_and_the_others_are_answered(api: Api) -> None:
    """Where all are at work: those that are not make room (`test_hostile_connections.py`)."""
    async with asyncio.timeout(20), door(api, connections=2) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for _, writer in held:
            writer.write(HALF_BODY)
        await asyncio.sleep(0.2)
        assert await said_to(port, b"") == b""
        for reader, writer in held:
            writer.write(b"x" * 200_000)
            assert b"400 Bad Request" in await reader.readuntil(b"\r\n\r\n")
            writer.close()


@pytest.mark.control("test_one_connection_too_many_is_closed_and_the_others_are_answered")
async def test_control_where_connections_are_not_counted_all_are_let_in(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Door, "connection_made", web.Server.connection_made)
    async with asyncio.timeout(20), door(api, connections=2) as port:
        open_ones = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        for reader, writer in open_ones:
            writer.write(WHOLE)
            assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        for _, writer in open_ones:
            writer.close()


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


@pytest.mark.control("test_the_word_of_configured_proxies_alone_is_taken_for_an_address")
def test_control_where_anybodys_word_is_taken_a_stranger_has_any_address_that_he_likes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hanse_coordinator.api.door.is_within", lambda *_: True)
    http = make_mocked_request("GET", "/", headers={"X-Forwarded-For": "203.0.113.9"}).clone(remote="198.51.100.7")
    assert address_of(http, [ip_network("10.0.0.0/8")]) == "203.0.113.9"


async def guessed(api: Api, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """The statuses of a good token, and of a good key of another replica's, beside many guesses of both from the same
    address, which behind an ingress is everybody's."""
    owner = await api.make_key("operator")
    await api.ok("POST", "/v1/projects", owner, {"name": "alpha", "schema": SCHEMA})
    token = (await api.ok("POST", "/v1/projects/alpha/invitations", owner, {"participant": "north"}))["token"]
    for _ in range(40):
        await api.refused("POST", "/v1/join/challenge", body={"token": token[:-43] + "x" * 43})
        await api.refused("GET", "/v1/status", make_api_key().text)
    assert api.hub.keys.limiter.exhausted("127.0.0.1")
    monkeypatch.setattr(api.hub.keys._held, "note", lambda *_: None)  # the watch has not brought it yet
    key = await api.make_key("operator")
    async with api.client.post("/v1/join/challenge", json={"token": token}) as answer:
        joined = answer.status
    async with api.client.get("/v1/status", headers={"Authorization": f"Bearer {key}"}) as answer:
        return joined, answer.status


async def test_guesses_from_an_address_keep_no_good_token_or_key_out(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await guessed(api, monkeypatch) == (200, 200)


@pytest.mark.control("test_guesses_from_an_address_keep_no_good_token_or_key_out")
async def test_control_where_an_address_that_failed_is_shut_out_everybody_behind_it_is(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def shut_out(limiter: FailureLimiter, address: str, what: str) -> Iterator[None]:
        if limiter.exhausted(address):
            raise HanseError(ErrorCode.UNAUTHENTICATED, f"{what}: too many failed attempts")
        yield

    monkeypatch.setattr(FailureLimiter, "looking_up", shut_out)
    assert await guessed(api, monkeypatch) == (401, 401)
