"""Certificates that are renewed while a service runs: new connections get them without a restart."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from certificates import Pair, ThrowawayCa
from hanse_fabric import tls
from hanse_fabric.errors import HanseError
from hanse_fabric.store.http import HttpClient


async def shown(port: int, ca: Path) -> bytes:
    """The certificate that a server shows."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls.client_context(ca))
    found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return found


@pytest.fixture
async def serving(tmp_path: Path) -> AsyncIterator[tuple[ThrowawayCa, Pair, int]]:
    ca = ThrowawayCa(tmp_path)
    pair = ca.issue("hub")
    async with served(pair) as port:
        yield ca, pair, port


async def test_a_renewed_certificate_is_shown_to_who_connects_next(serving: tuple[ThrowawayCa, Pair, int]) -> None:
    ca, pair, port = serving
    first = await shown(port, ca.cert)
    tls.load_renewed()
    assert await shown(port, ca.cert) == first
    ca.issue("hub")
    touch(pair.cert, pair.key)
    tls.load_renewed()
    assert await shown(port, ca.cert) != first


async def test_half_a_renewal_changes_nothing_until_it_is_whole(serving: tuple[ThrowawayCa, Pair, int]) -> None:
    ca, pair, port = serving
    first, key = await shown(port, ca.cert), pair.key.read_bytes()
    ca.issue("hub")
    whole = pair.key.read_bytes()
    pair.key.write_bytes(key)
    touch(pair.cert, pair.key)
    tls.load_renewed()
    assert await shown(port, ca.cert) == first
    pair.key.write_bytes(whole)
    tls.load_renewed()
    assert await shown(port, ca.cert) != first


async def test_a_renewed_ca_is_trusted_by_those_who_are_connected_already(tmp_path: Path) -> None:
    old, new = ThrowawayCa(tmp_path, "old"), ThrowawayCa(tmp_path, "new")
    trusted = tmp_path / "ca.pem"
    trusted.write_bytes(old.cert.read_bytes())
    context = tls.client_context(trusted)
    async with served(new.issue("hub")) as port:
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection("127.0.0.1", port, ssl=context)
        assert not tls.load_renewed()
        trusted.write_bytes(new.cert.read_bytes())
        touch(trusted)
        assert tls.load_renewed()
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.close()


async def test_the_store_of_a_renewed_ca_is_asked_again_without_a_restart(tmp_path: Path) -> None:
    old, new = ThrowawayCa(tmp_path, "old"), ThrowawayCa(tmp_path, "new")
    trusted = tmp_path / "ca.pem"
    trusted.write_bytes(old.cert.read_bytes())
    http = HttpClient(trusted, patience=2.0)
    async with served(new.issue("hub"), answer=b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx") as port:

        def ask() -> bytes:
            return http.request("GET", f"https://127.0.0.1:{port}/", lambda response: response.read())

        with pytest.raises(HanseError, match="certificate"):
            await asyncio.to_thread(ask)
        trusted.write_bytes(new.cert.read_bytes())
        touch(trusted)
        assert await asyncio.to_thread(ask) == b"x"
    http.close()


@asynccontextmanager
async def served(pair: Pair, answer: bytes = b"") -> AsyncIterator[int]:
    """A server with this certificate; its port."""

    async def reply(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(reply, "127.0.0.1", 0, ssl=tls.server_context(pair.cert, pair.key))
    async with server:
        yield server.sockets[0].getsockname()[1]


def touch(*files: Path) -> None:
    """As if a second had passed: they may have been written within one tick of the file system."""
    for file in files:
        written = file.stat().st_mtime_ns + 1_000_000_000
        os.utime(file, ns=(written, written))
