"""A hub's bus gets another number of servers by a backup and a restore (docs/operator.md), in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from nats.errors import NoRespondersError

from hanse_fabric.subjects import JOURNAL, OPENED, Role
from hanse_operations.__main__ import main
from hanse_operations.backup.snapshots import connected
from servers import NatsCluster, NatsServer

ENTRIES = JOURNAL.of(project="p", run="r")


def deploy(bus: NatsServer | NatsCluster, role: Role, command: str, *argv: str) -> int:
    creds = bus.authority.service_credentials(role)
    return main([command, "--url", bus.url, "--creds", str(creds), *argv])


async def entries(bus: NatsServer | NatsCluster) -> list[bytes]:
    connection = await bus.connect(Role.COORDINATOR)
    assert JOURNAL.stream is not None
    found = await connection.snapshot(JOURNAL.stream, ENTRIES, timeout=60)
    await connection.close()
    return [entry.data for entry in found]


async def test_one_server_becomes_three_and_three_become_one(
    new_nats: Callable[..., NatsServer], tmp_path: Path
) -> None:
    one = await asyncio.to_thread(new_nats)
    writer = await one.connect(Role.COORDINATOR)
    for number in range(3):
        await writer.publish(ENTRIES, f"entry {number}".encode())
    await writer.close()
    three = NatsCluster(tmp_path / "three")
    (tmp_path / "three").mkdir()
    await asyncio.to_thread(three.start)
    try:
        assert await asyncio.to_thread(deploy, one, Role.BACKUP, "backup", "--to", str(tmp_path / "small")) == 0
        # As the chart does it: the state job of the new cluster may have been there first.
        assert await asyncio.to_thread(deploy, three, Role.PROVISIONER, "state", "--replicas", "3") == 0
        words = ("restore", "--from", str(tmp_path / "small"), "--replicas", "3")
        assert await asyncio.to_thread(deploy, three, Role.RESTORER, *words) == 0
        assert await asyncio.to_thread(deploy, three, Role.PROVISIONER, "state", "--replicas", "3") == 0
        assert await entries(three) == [b"entry 0", b"entry 1", b"entry 2"]
        assert await asyncio.to_thread(deploy, three, Role.BACKUP, "backup", "--to", str(tmp_path / "large")) == 0
    finally:
        three.kill()
    alone = await asyncio.to_thread(new_nats, bare=True)
    words = ("restore", "--from", str(tmp_path / "large"), "--replicas", "1")
    assert await asyncio.to_thread(deploy, alone, Role.RESTORER, *words) == 0
    assert await asyncio.to_thread(deploy, alone, Role.PROVISIONER, "state", "--replicas", "1") == 0
    assert await entries(alone) == [b"entry 0", b"entry 1", b"entry 2"]


async def test_a_request_that_nobody_hears_yet_is_asked_again_until_its_time_is_over(nats_server: NatsServer) -> None:
    """As where a server of a cluster has not learnt yet who listens at another."""
    creds = nats_server.authority.service_credentials(Role.AGGREGATOR).read_text()
    subject = OPENED.of(**dict.fromkeys(OPENED.tokens, "x"))
    hub = await nats_server.connect(Role.COORDINATOR)
    try:
        async with connected(nats_server.url, creds, Role.AGGREGATOR) as link:
            link.unheard_s = 0.2
            with pytest.raises(NoRespondersError):
                await link.request(subject, b"")
            link.unheard_s = 30.0
            asking = asyncio.ensure_future(link.request(subject, b"now?"))
            await asyncio.sleep(0.2)
            assert not asking.done()
            serving = await hub.serve(OPENED.wildcard(), _echo, group="test")
            assert await asking == b"now?"
            await serving.stop()
    finally:
        await hub.close()


async def _echo(_subject: str, data: bytes) -> bytes:
    return data
