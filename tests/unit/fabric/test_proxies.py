"""HANSE_PROXY: what it may be, which hosts are reached without it, and that no message has its password."""

import asyncio
import ssl
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import httpx
import pytest
from aiohttp import web

from certificates import ThrowawayCa
from hanse.wire import client_options
from hanse_fabric import proxies
from hanse_fabric.bus.patient_client import _through_proxy
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.store.http import HttpClient
from hanse_site.joining import post
from way_out import WayOut


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    for name in ("HANSE_PROXY", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    yield
    proxies.use("")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("proxy:3128", "'proxy:3128'"), ("ftp://proxy:21", "'ftp://proxy:21'"), ("http://proxy", "'http://proxy'"),
        ("http://proxy:99999", "'http://proxy:99999'"), ("http://proxy:1/path", "'http://proxy:1/path'"),
        ("ftp://ada:hidden@proxy:21", "what it holds"),
    ],
)  # fmt: skip
def test_what_is_no_proxy_is_refused_with_an_example_and_without_its_password(monkeypatch, url, shown):
    monkeypatch.setenv("HANSE_PROXY", url)
    with pytest.raises(HanseError, match=r"HANSE_PROXY: .*such as http://proxy\.example\.org:3128") as caught:
        proxies.proxy_for("https://hub.example.org")
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert shown in caught.value.message
    assert "hidden" not in caught.value.message


def test_this_machine_and_hosts_in_no_proxy_are_reached_directly(monkeypatch):
    monkeypatch.setenv("HANSE_PROXY", "http://ada:hidden@proxy:3128")
    monkeypatch.setenv("NO_PROXY", "inside.example.org,.local")
    for host in ("localhost", "127.0.0.1", "127.3.2.1", "[::1]", "inside.example.org", "store.local"):
        assert proxies.proxy_for(f"https://{host}:8443/x") is None, host
    found = proxies.proxy_for("wss://hub.example.org:443")
    assert found.credentials == "ada:hidden"
    assert "hidden" not in repr(found)
    proxies.use("socks5h://other:1080")
    assert proxies.proxy_for("https://hub.example.org").shown == "socks5h://other:1080"


@asynccontextmanager
async def hub_behind(way, folder):
    """A hub over TLS at `hub.test`, a name that the proxy alone knows; tells its port and its authority."""
    ca = ThrowawayCa(folder)
    pair = ca.issue("hub", "hub.test")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pair.cert, pair.key)

    async def answer(request):
        return web.json_response({"method": request.method})

    async def echo(request):
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_bytes(b"INFO")
        await socket.close()
        return socket

    app = web.Application()
    app.add_routes([web.get("/bus", echo), web.get("/hub", answer), web.post("/hub", answer)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    server = await asyncio.start_server(way.serve, "127.0.0.1", 0)
    try:
        yield runner.addresses[0][1], server.sockets[0].getsockname()[1], ca.cert
    finally:
        server.close()
        await runner.cleanup()


def fetched(ca, url, patience):
    client = HttpClient(ca, patience=patience)
    try:
        return client.request("GET", url, lambda response: response.read())
    finally:
        client.close()


@pytest.mark.parametrize(("scheme", "way_of"), [("http", "http"), ("socks5h", "socks")])
async def test_every_client_goes_through_and_a_wrong_password_is_told(tmp_path, scheme, way_of):
    way = WayOut("ada", "p:w@rd", {"hub.test": "127.0.0.1"})
    async with hub_behind(way, tmp_path) as (hub, port, ca):
        url = f"https://hub.test:{hub}/hub"
        proxies.use(f"{scheme}://ada:p%3Aw%40rd@localhost:{port}")
        assert await post(url, {}, ca, 10.0, SYSTEM_CLOCK) == {"method": "POST"}
        assert b"GET" in await asyncio.to_thread(fetched, ca, url, 5.0)
        async with httpx.AsyncClient(**client_options(url.removesuffix("/hub"), None, ca)) as client:
            assert (await client.get("/hub")).json() == {"method": "GET"}
        transport = _through_proxy(f"wss://hub.test:{hub}/bus")
        tls = ssl.create_default_context(cafile=str(ca))
        await transport.connect_tls(urlsplit(f"wss://hub.test:{hub}/bus"), tls, 1 << 16, 5)
        assert await transport.readline() == b"INFO"
        await transport._ws.close()
        await transport._client.close()
        with pytest.raises(HanseError, match="its certificate is refused"):
            await post(url, {}, None, 10.0, SYSTEM_CLOCK)
        assert way.seen == [(way_of, f"hub.test:{hub}")] * 5
        assert way.refused == 0

        proxies.use(f"{scheme}://ada:hidden@localhost:{port}")
        with pytest.raises(HanseError) as caught:
            await post(url, {}, ca, 10.0, SYSTEM_CLOCK)
        assert caught.value.code is ErrorCode.UNAVAILABLE
        with pytest.raises(HanseError) as of_store:
            await asyncio.to_thread(fetched, ca, url, 0.1)
        assert way.refused >= 2
        assert len(way.seen) == 5
        assert "hidden" not in f"{caught.value} {caught.value.hint} {of_store.value}"
        assert f"the proxy {scheme}://localhost:{port}" in caught.value.message
        assert ("answers 407" if scheme == "http" else "refuses: ") in caught.value.message
        assert "check the name and the password in HANSE_PROXY" in caught.value.hint


def test_a_bus_by_tcp_is_refused_with_the_way_out():
    with pytest.raises(HanseError, match=r"none for a bus at nats://hub\.test:4222: a bus goes through a proxy by Web"):
        _through_proxy("nats://hub.test:4222")
