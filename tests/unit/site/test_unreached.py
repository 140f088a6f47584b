"""A hub that is not reached: the reason is told in words, without objects of the client's."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from certificates import ThrowawayCa
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_site.joining import post
from hanse_site.told_ca import told_ca


@asynccontextmanager
async def listening(context: ssl.SSLContext | None, *, answers: bool = True) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        if answers:
            writer.write(b"no HTTP\r\n\r\n")
        else:
            await asyncio.sleep(5)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1]


async def refusal(url: str, ca: Path | None = None, timeout: float = 10.0) -> str:
    with pytest.raises(HanseError) as raised:
        await post(url, {}, ca, timeout, SYSTEM_CLOCK)
    assert raised.value.code is ErrorCode.UNAVAILABLE
    assert not re.search(r"object at 0x|ssl:|_ssl\.c|\(\"|\(1, ", raised.value.message), raised.value.message
    return raised.value.message


async def test_what_stands_in_the_way_is_told_in_words(tmp_path: Path) -> None:
    ours, theirs = ThrowawayCa(tmp_path, "ours"), ThrowawayCa(tmp_path, "theirs")
    pair, context = ours.issue("hub"), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    gone = f"https://localhost:{port}"
    assert await refusal(gone, ours.cert) == f"hub {gone}: Connection refused"
    async with listening(None) as plain, listening(context) as good, listening(None, answers=False) as slow:
        assert "no TLS: WRONG_VERSION_NUMBER" in await refusal(f"https://localhost:{plain}", ours.cert)
        told = await refusal(f"https://localhost:{good}", theirs.cert)
        assert told.endswith("its certificate is refused (unable to get local issuer certificate)")
        assert (await refusal(f"http://localhost:{slow}", timeout=0.2)).endswith("no answer in time")
    with pytest.raises(HanseError, match="Connection refused") as raised:
        await told_ca(gone, f"sha256:{'0' * 64}", timeout=5.0)
    assert raised.value.message == f"hub {gone}: Connection refused"


@pytest.mark.parametrize("kind", ["http", "socks5h"])
async def test_where_the_proxy_is_not_reached_it_is_named(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Or an administrator would look for the fault at the hub."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monkeypatch.setenv("HANSE_PROXY", f"{kind}://name:secret@127.0.0.1:{port}")
    hub = "https://hub.example.org"
    wanted = f"hub {hub}, through the proxy {kind}://127.0.0.1:{port}: Connection refused"
    assert await refusal(hub) == wanted
    with pytest.raises(HanseError) as raised:
        await told_ca(hub, f"sha256:{'0' * 64}", timeout=5.0)
    assert raised.value.message == wanted
