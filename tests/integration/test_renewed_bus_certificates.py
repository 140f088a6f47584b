"""A nats-server shows renewed certificates without a restart, once the program beside it has told it."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from certificates import Pair, ThrowawayCa
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.subjects import Role
from hanse_operations.bus.renewed import Renewals
from hanse_operations.bus.server import ServerTls
from servers import NatsServer


async def shown(port: int, *, websocket: bool = False) -> bytes:
    """The certificate that a server shows to who connects now."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context if websocket else None)
    if not websocket:
        await reader.readline()  # what the server says of itself comes before TLS
        await writer.start_tls(context)
    found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return found


def renewed(pair: Pair, ca: ThrowawayCa) -> None:
    """Another certificate in the same files."""
    fresh = ca.issue("fresh")
    pair.cert.write_bytes(fresh.cert.read_bytes())
    pair.key.write_bytes(fresh.key.read_bytes())


async def test_a_server_is_told_of_renewed_certificates_and_shows_them_while_clients_stay(tmp_path: Path) -> None:
    (tmp_path / "tls").mkdir()
    ca, issued = ThrowawayCa(tmp_path), ThrowawayCa(tmp_path / "tls").issue("bus")
    server = NatsServer(tmp_path / "nats", tls=ServerTls(issued.cert, issued.key))
    server.start()
    pid_file = tmp_path / "nats.pid"
    try:
        client = await connected(server, issued)
        first, renewals = await shown(server.port), Renewals(pid_file, issued.cert.parent)
        assert not renewals.look()
        renewed(issued, ca)
        assert not renewals.look()  # it has written no number yet
        pid_file.write_text("1")
        assert not renewals.look()  # another program's
        assert await shown(server.port) == first
        pid_file.write_text(str(server.pid))
        assert renewals.look()
        async with asyncio.timeout(30):
            while await shown(server.port) == first:  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.05)
        assert not renewals.look()
        assert client._connection.generation == 0  # it has not been away
        await client.close()
    finally:
        server.kill()


async def connected(server: NatsServer, pair: Pair) -> NatsBus:
    """A client of the server."""
    creds = server.authority.service_credentials(Role.COORDINATOR)
    authority = next(pair.cert.parent.glob("*-ca.pem"))
    return await NatsBus.connect(server.url, "coordinator", creds=creds, ca=authority)


@pytest.mark.parametrize("missing", ["file", "number"])
def test_a_server_that_cannot_be_told_is_told_later(tmp_path: Path, missing: str) -> None:
    folder, pid_file = tmp_path / "tls", tmp_path / "pid"
    folder.mkdir()
    (folder / "tls.crt").write_text("one")
    renewals = Renewals(pid_file, folder)
    (folder / "tls.crt").write_text("two")
    if missing == "number":
        pid_file.write_text("")
    assert [renewals.look() for _ in range(2)] == [False, False]
