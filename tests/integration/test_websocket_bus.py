"""The bus over WebSocket, plain and with TLS: sites do what they do over TCP, find their server again, trust one CA."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from certificates import ThrowawayCa
from hanse_fabric.bus.jwt import credentials
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.subjects import DOORS, TELL, Door, Role
from hanse_fabric.tls import client_context
from hanse_operations.bus.server import ServerTls
from hanse_operations.servers.program import free_ports
from servers import NatsServer

WITHIN_S = 60
LARGE = bytes(range(256)) * 800  # in several frames


class WebServer:
    """A server with a listener for WebSocket, with TLS where there is a CA."""

    def __init__(self, folder: Path, ca: ThrowawayCa | None) -> None:
        pair = None if ca is None else ca.issue("server")
        self.ca = None if ca is None else ca.cert
        self.port = free_ports(1)[0]
        tls = None if pair is None else ServerTls(pair.cert, pair.key)
        self.nats = NatsServer(folder, tls=tls, websocket_port=self.port)

    @property
    def url(self) -> str:
        return f"{'ws' if self.ca is None else 'wss'}://127.0.0.1:{self.port}"

    async def site(self, name: str) -> NatsBus:
        key = KeyPair.create(KeyKind.USER)
        text = credentials(self.nats.authority.participant_jwt("p", name, key.public), key)
        return await NatsBus.connect(self.url, f"p.{name}", creds=text, ca=self.ca, timeout=WITHIN_S)

    async def hub(self) -> NatsBus:
        return await self.nats.connect(Role.COORDINATOR, ca=self.ca)


@pytest.fixture(scope="module", params=["ws", "wss"])
def server(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[WebServer]:
    folder = tmp_path_factory.mktemp(request.param)
    made = WebServer(folder, ThrowawayCa(folder) if request.param == "wss" else None)
    made.nats.start()
    tls = None if made.ca is None else client_context(made.ca)
    asyncio.run(made.nats.provision(tls))
    yield made
    made.nats.kill()


def door(name: str) -> str:
    return DOORS[Door.RESULT].of(region="hub", project="p", participant=name)


async def test_a_site_over_websocket_is_told_and_asks(server: WebServer) -> None:
    hub, site = await server.hub(), await server.site("north")
    served = await hub.serve(DOORS[Door.RESULT].wildcard(), _echo, group="coordinators")
    tell = TELL.of(region="hub", project="p", participant="north")
    async with asyncio.timeout(WITHIN_S), site.hear(tell) as told:
        assert await anext(told) is None
        for _ in range(10):
            await hub.tell(tell, LARGE)
            heard = await anext(told)
            assert heard is not None
            assert heard.data == LARGE
            assert await site.request(door("north"), LARGE, timeout=WITHIN_S) == LARGE
    await served.stop()
    await site.close()
    await hub.close()


async def test_a_server_that_is_killed_and_comes_back_is_found_again(server: WebServer) -> None:
    hub, site = await server.hub(), await server.site("east")
    served = await hub.serve(DOORS[Door.RESULT].wildcard(), _echo, group="coordinators")
    async with asyncio.timeout(240), site.hear(TELL.of(region="hub", project="p", participant="east")) as told:
        for number in range(3):
            assert await anext(told) is None  # at first, and after each reconnection
            assert await site.request(door("east"), b"%d" % number, timeout=WITHIN_S) == b"%d" % number
            await server.nats.restart()
    await served.stop()
    await site.close()
    await hub.close()


async def test_a_site_over_websocket_may_do_no_more_than_over_tcp(server: WebServer) -> None:
    site = await server.site("west")
    with pytest.raises(HanseError) as refusal:
        await site.request(door("north"), b"x", timeout=WITHIN_S)
    assert refusal.value.code is ErrorCode.FORBIDDEN
    await site.close()


async def test_credentials_of_another_hub_are_refused_over_websocket(server: WebServer, tmp_path: Path) -> None:
    other = NatsServer(tmp_path / "other").authority
    key = KeyPair.create(KeyKind.USER)
    text = credentials(other.participant_jwt("p", "north", key.public), key)
    with pytest.raises(HanseError) as refusal:
        await NatsBus.connect(server.url, "p.north", creds=text, ca=server.ca, timeout=WITHIN_S)
    assert refusal.value.code is ErrorCode.UNAUTHENTICATED


@pytest.mark.parametrize("ca", ["of a stranger", "of the system"])
async def test_a_certificate_of_another_authority_is_refused_at_once(
    server: WebServer, tmp_path: Path, ca: str
) -> None:
    if server.ca is None:
        pytest.skip("only with TLS")
    wrong = ThrowawayCa(tmp_path, "stranger").cert if ca == "of a stranger" else None
    with pytest.raises(HanseError, match="certificate is refused") as refusal:
        await NatsBus.connect(server.url, "p.north", ca=wrong, timeout=WITHIN_S)
    assert refusal.value.code is ErrorCode.UNAVAILABLE
    assert "HANSE_BUS_CA" in refusal.value.hint


async def _echo(subject: str, data: bytes) -> bytes:
    return data
