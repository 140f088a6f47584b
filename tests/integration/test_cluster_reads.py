"""A bus of three servers: what was confirmed is seen at every member, also at one that is behind, and one may die."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import pytest_asyncio

from hanse_fabric.bus.calls import Calls
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.subjects import JOURNAL, REDUCED, RUNS, Role, Stream, Subject
from hanse_operations.bus.provision import provision
from servers import NatsCluster, NatsServer

WRITES = 30


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NatsCluster]:
    made = NatsCluster(tmp_path_factory.mktemp("cluster"))
    await asyncio.to_thread(made.start)
    creds = made.authority.service_credentials(Role.PROVISIONER).read_text()
    await provision(made.url, creds, replicas=3, timeout=120)
    yield made
    await asyncio.to_thread(made.kill)


async def coordinator(cluster: NatsCluster, url: str) -> NatsBus:
    creds = cluster.authority.service_credentials(Role.COORDINATOR)
    return await NatsBus.connect(url, "coordinator", creds=creds, timeout=60, heartbeat=1.0, confirm=True)


def stream_of(row: Subject) -> Stream:
    assert row.stream is not None
    return row.stream


async def leader(cluster: NatsCluster, row: Subject) -> NatsServer:
    """The server that leads the row's stream."""
    creds = cluster.authority.service_credentials(Role.PROVISIONER)
    bus = await NatsBus.connect(cluster.url, "provisioner", creds=creds, timeout=60)
    subject, end = f"$JS.API.STREAM.INFO.{stream_of(row).name}", asyncio.get_running_loop().time() + 60
    while True:
        answer = await bus._connection.call(subject, b"", deadline=end)
        name = json.loads(answer.data).get("cluster", {}).get("leader")
        if name:
            break
    await bus.close()
    return cluster.servers[int(name.rpartition("-")[2])]


@contextmanager
def held_up(server: NatsServer) -> Iterator[None]:
    """The server stands still while inside."""
    assert server._process is not None
    os.kill(server._process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server._process.pid, signal.SIGCONT)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("row", [RUNS, REDUCED, JOURNAL], ids=["records", "answers", "snapshots"])
async def test_a_bus_server_that_was_paused_reads_what_was_written_meanwhile(
    cluster: NatsCluster, row: Subject
) -> None:
    for attempt in range(2):
        first = await leader(cluster, row)  # each time: a member that was held up may call for an election
        late, other = (server for server in cluster.servers if server is not first)
        writer = await (coordinator if row is not REDUCED else aggregator)(cluster, f"{first.url},{other.url}")
        reader = await coordinator(cluster, late.url)
        with held_up(late):
            for number in range(WRITES):
                tokens = {"project": "p", "run": f"{attempt}-{number}", "step": "s", "job": "j"}
                subject = row.of(**{name: tokens[name] for name in row.tokens})
                await writer.publish(subject, b"x" * 10_000, timeout=60)
            read = reader.snapshot if row is JOURNAL else reader.last
            reading = asyncio.create_task(read(stream_of(row), subject, timeout=60))
            await asyncio.sleep(0.02)  # the request is on its way before the server goes on
        assert await reading, "what was confirmed is not there"
        await writer.close()
        await reader.close()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("expected", [None, 0], ids=["any", "expected-last"])
async def test_a_write_that_the_cluster_has_not_agreed_on_in_time_is_asked_again_and_stored_once(
    cluster: NatsCluster, expected: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await leader(cluster, JOURNAL)
    writer = await coordinator(cluster, first.url)
    subject, tries, again = JOURNAL.of(project="p", run=f"slow-{expected}"), [], asyncio.Event()
    attempt = Calls.attempt

    async def impatient(self: Calls, to: str, data: bytes, deadline: float, *rest: Any) -> object:
        if to == subject:
            tries.append(to)
            deadline = min(deadline, asyncio.get_running_loop().time() + 0.2)
            if len(tries) > 3:
                again.set()
        return await attempt(self, to, data, deadline, *rest)

    monkeypatch.setattr(Calls, "attempt", impatient)
    late, other = (server for server in cluster.servers if server is not first)
    with held_up(late), held_up(other):  # so that most copies lack it
        writing = asyncio.create_task(writer.publish(subject, b"once", expected_last=expected, timeout=60))
        await asyncio.wait({writing, asyncio.ensure_future(again.wait())}, return_when=asyncio.FIRST_COMPLETED)
    sequence = await writing
    assert [record.sequence for record in await writer.snapshot(stream_of(JOURNAL), subject, timeout=60)] == [sequence]
    await writer.close()


async def aggregator(cluster: NatsCluster, url: str) -> NatsBus:
    creds = cluster.authority.service_credentials(Role.AGGREGATOR)
    return await NatsBus.connect(url, "aggregator", creds=creds, timeout=60, confirm=True)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.timeout(300)
async def test_a_stream_whose_leader_is_killed_goes_on_without_gap(cluster: NatsCluster) -> None:
    writer, reader = await coordinator(cluster, cluster.url), await coordinator(cluster, cluster.url)
    subject, seen = JOURNAL.of(project="p", run="killed"), []
    async with asyncio.timeout(240), reader.follow(stream_of(JOURNAL), subject) as records:
        last = 0
        for number in range(40):
            if number == 10:
                killed = await leader(cluster, JOURNAL)
                await asyncio.to_thread(killed.kill)
            if number == 30:
                await asyncio.to_thread(killed.start)
            last = await writer.publish(subject, str(number).encode(), expected_last=last, timeout=120)
        async for record in records:
            seen.append(int(record.data))
            if len(seen) == 40:
                break
    assert seen == list(range(40))
    await writer.close()
    await reader.close()
