"""Three nats-servers as one: streams in copies, and revocations on every server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from hanse_fabric.bus.jwt import credentials
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.subjects import JOURNAL, RUNS, Role
from hanse_operations.bus.provision import provision
from servers import NatsCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    made = NatsCluster(tmp_path_factory.mktemp("cluster"))
    made.start()
    yield made
    made.kill()


async def test_streams_get_their_copies_when_the_hub_is_provisioned_anew(cluster: NatsCluster) -> None:
    creds = cluster.authority.service_credentials(Role.PROVISIONER).read_text()
    await provision(cluster.url, creds, replicas=1, timeout=120)
    bus = await cluster.connect(Role.COORDINATOR)
    await bus.publish(RUNS.of(project="p", run="r"), b"before", timeout=60)
    await provision(cluster.url, creds, replicas=3, timeout=120)
    assert RUNS.stream is not None
    record = await bus.last(RUNS.stream, RUNS.of(project="p", run="r"), timeout=60)
    assert record is not None
    assert record.data == b"before"
    await bus.close()


async def test_a_key_revoked_at_one_server_is_void_at_all(cluster: NatsCluster) -> None:
    key = KeyPair.create(KeyKind.USER)
    creds = credentials(cluster.authority.participant_jwt("p", "north", key.public), key)
    for url in cluster.urls:
        await (await NatsBus.connect(url, "p.north", creds=creds, timeout=60)).close()
    await cluster.authority.revoke(key.public, url=cluster.url, timeout=60)

    async def come_back(url: str) -> None:
        while True:  # until this one has heard of it from the others, too
            await (await NatsBus.connect(url, "p.north", creds=creds, timeout=60)).close()

    for url in cluster.urls:
        with pytest.raises(HanseError) as refusal:
            await asyncio.wait_for(come_back(url), 60)
        assert refusal.value.code is ErrorCode.UNAUTHENTICATED


async def test_journals_are_read_though_a_member_has_just_died(cluster: NatsCluster) -> None:
    """A reading's consumer may be given to the dead member as long as the cluster has not missed it."""
    creds = cluster.authority.service_credentials(Role.PROVISIONER).read_text()
    await provision(cluster.url, creds, replicas=3, timeout=120)
    bus = await cluster.connect(Role.COORDINATOR)
    subject = JOURNAL.of(project="p", run="r")
    await bus.publish(subject, b"entry", timeout=60)
    assert JOURNAL.stream is not None
    dead = next(server for server in cluster.servers if server.url != bus._connection.client.connected_url.geturl())
    dead.kill()
    read = await asyncio.gather(*(bus.snapshot(JOURNAL.stream, subject, timeout=120) for _ in range(8)))
    assert [[entry.data for entry in one] for one in read] == [[b"entry"]] * 8
    await bus.close()
    dead.start()
