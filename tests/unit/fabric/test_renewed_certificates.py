"""Certificates that are renewed while a service runs: new connections get them without a restart."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from certificates import Pair, ThrowawayCa
from hanse_fabric import tls


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

    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=tls.server_context(pair.cert, pair.key))
    async with server:
        yield ca, pair, server.sockets[0].getsockname()[1]


async def test_a_renewed_certificate_is_shown_to_who_connects_next(serving: tuple[ThrowawayCa, Pair, int]) -> None:
    ca, pair, port = serving
    first = await shown(port, ca.cert)
    tls.load_renewed()
    assert await shown(port, ca.cert) == first
    ca.issue("hub")
    touch(pair)
    tls.load_renewed()
    assert await shown(port, ca.cert) != first


async def test_half_a_renewal_changes_nothing_until_it_is_whole(serving: tuple[ThrowawayCa, Pair, int]) -> None:
    ca, pair, port = serving
    first, key = await shown(port, ca.cert), pair.key.read_bytes()
    ca.issue("hub")
    whole = pair.key.read_bytes()
    pair.key.write_bytes(key)
    touch(pair)
    tls.load_renewed()
    assert await shown(port, ca.cert) == first
    pair.key.write_bytes(whole)
    tls.load_renewed()
    assert await shown(port, ca.cert) != first


def touch(pair: Pair) -> None:
    """As if a second had passed: the two may have been written within one tick of the file system."""
    for file in (pair.cert, pair.key):
        written = file.stat().st_mtime_ns + 1_000_000_000
        os.utime(file, ns=(written, written))
