"""Who may do what on the bus: generated permissions on a real server, revocation, wrong credentials, TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from certificates import ThrowawayCa
from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.bus.jwt import credentials
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.bus.port import Record
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.subjects import (
    DOORS,
    JOB,
    JOURNAL,
    KEYS,
    REDUCED,
    RESULT,
    RUNS,
    TASK,
    TELL,
    UPDATE,
    Door,
    Role,
    Stream,
    Subject,
)
from hanse_fabric.tls import client_context
from hanse_operations.bus.server import ServerTls
from servers import NatsServer

D = "0" * 64


def own(row: Subject, **changes: str) -> str:
    """A subject of participant north of project p, with some tokens changed."""
    values = {"project": "p", "participant": "north", "run": "r", "step": "s", "job": "j", "digest": D, "key": "k"}
    return row.of(**{name: (values | changes)[name] for name in row.tokens})


async def first(bus: NatsBus, stream: Stream | None, subject: str) -> Record:
    assert stream is not None
    async with asyncio.timeout(60), bus.follow(stream, subject) as records:
        return await anext(records)


async def refused(attempt: Awaitable[object]) -> None:
    """The attempt is forbidden: not refused for having taken too long, which has a code of its own."""
    async with asyncio.timeout(60):
        with pytest.raises(HanseError) as refusal:
            await attempt
    assert refusal.value.code is ErrorCode.FORBIDDEN
    assert refusal.value.hint


def door(kind: Door, **changes: str) -> str:
    """A door of participant north of project p, with some tokens changed."""
    return DOORS[kind].of(**{"region": "hub", "project": "p", "participant": "north"} | changes)


async def test_a_participant_asks_at_its_doors_and_hears_what_it_is_told(nats_server: NatsServer) -> None:
    site, _ = await nats_server.enrol("p", "north")
    hubs = {role: await nats_server.connect(role) for role in (Role.COORDINATOR, Role.AGGREGATOR)}
    for kind, row in DOORS.items():
        [role] = [role for role in row.rights if role is not Role.PARTICIPANT]
        served = await hubs[role].serve(row.wildcard(), _echo, group="g")
        assert await site.request(door(kind), kind.encode()) == kind.encode()
        await served.stop()
    async with site.hear(TELL.of(region="hub", project="p", participant="north")) as told:
        assert await anext(told) is None
        await hubs[Role.COORDINATOR].tell(
            TELL.of(region="hub", project="p", participant="north"), b"x", headers={"a": "b"}
        )
        heard = await asyncio.wait_for(anext(told), 60)
    assert heard is not None
    assert (heard.data, heard.headers["a"]) == (b"x", "b")
    for bus in (site, *hubs.values()):
        await bus.close()


PARTICIPANT_MAY_NOT: dict[str, Callable[[NatsBus], Awaitable[object]]] = {
    "follow its own tasks": lambda b: first(b, TASK.stream, TASK.wildcard(project="p", participant="north")),
    "follow all tasks": lambda b: first(b, TASK.stream, "hanse.v1.task.>"),
    "follow results": lambda b: first(b, RESULT.stream, RESULT.wildcard(project="p", participant="north")),
    "read updates": lambda b: b.last(_stream(UPDATE), own(UPDATE)),
    "read API keys": lambda b: b.last(_stream(KEYS), KEYS.of(key="k")),
    "ask as another": lambda b: b.request(door(Door.RESULT, participant="south"), b"x"),
    "ask in another project": lambda b: b.request(door(Door.RESULT, project="q"), b"x"),
    "ask in another region": lambda b: b.request(door(Door.RESULT, region="eu"), b"x"),
    "hear what another is told": lambda b: heard(b, TELL.of(region="hub", project="p", participant="south")),
    "hear what all are told": lambda b: heard(b, "hanse.v1.tell.>"),
    "publish its own result": lambda b: b.publish(own(RESULT), b"x"),
    "publish a task for itself": lambda b: b.publish(own(TASK), b"x"),
    "publish a job": lambda b: b.publish(own(JOB), b"x"),
    "publish a reduction": lambda b: b.publish(own(REDUCED), b"x"),
    "write the journal": lambda b: b.publish(own(JOURNAL), b"x"),
    "write a run": lambda b: b.publish(RUNS.of(project="p", run="r"), b"x"),
    "purge": lambda b: b.purge(_stream(TASK), own(TASK)),
    "serve a door": lambda b: b.serve(DOORS[Door.LINK].wildcard(), _echo, group="g"),
}


async def heard(bus: NatsBus, subject: str) -> Record | None:
    async with bus.hear(subject) as told:
        await anext(told)
        return await anext(told)


@pytest.mark.parametrize("what", PARTICIPANT_MAY_NOT)
async def test_a_participant_is_refused_at_once(nats_server: NatsServer, what: str) -> None:
    site, _ = await nats_server.enrol("p", "north")
    await refused(PARTICIPANT_MAY_NOT[what](site))
    await site.close()


SERVICE_MAY_NOT: dict[tuple[Role, str], Callable[[NatsBus], Awaitable[object]]] = {
    (Role.COORDINATOR, "read an update"): lambda b: b.last(_stream(UPDATE), own(UPDATE)),
    (Role.COORDINATOR, "follow updates"): lambda b: first(b, UPDATE.stream, UPDATE.wildcard()),
    (Role.COORDINATOR, "write an update"): lambda b: b.publish(own(UPDATE), b"x"),
    (Role.COORDINATOR, "answer to a site of its choice"): lambda b: b.publish("_INBOX.p.north.x", b"x"),
    (Role.COORDINATOR, "serve updates"): lambda b: b.serve(DOORS[Door.UPDATE].wildcard(), _echo, group="g"),
    (Role.AGGREGATOR, "tell a site"): lambda b: b.publish(TELL.of(region="hub", project="p", participant="n"), b"x"),
    (Role.AGGREGATOR, "follow tasks"): lambda b: first(b, TASK.stream, TASK.wildcard()),
    (Role.AGGREGATOR, "follow results"): lambda b: first(b, RESULT.stream, RESULT.wildcard()),
    (Role.AGGREGATOR, "write the journal"): lambda b: b.publish(own(JOURNAL), b"x"),
    (Role.AGGREGATOR, "read API keys"): lambda b: b.last(_stream(KEYS), KEYS.of(key="k")),
    (Role.MODEL_REGISTRY, "read an update"): lambda b: b.last(_stream(UPDATE), own(UPDATE)),
    (Role.MODEL_REGISTRY, "publish a task"): lambda b: b.publish(own(TASK), b"x"),
    (Role.PROVISIONER, "read an update"): lambda b: b.last(_stream(UPDATE), own(UPDATE)),
    (Role.PROVISIONER, "publish a task"): lambda b: b.publish(own(TASK), b"x"),
}


@pytest.mark.parametrize("case", SERVICE_MAY_NOT, ids=lambda case: f"{case[0].value} {case[1]}")
async def test_a_service_is_refused_what_is_not_its_work(nats_server: NatsServer, case: tuple[Role, str]) -> None:
    bus = await nats_server.connect(case[0])
    await refused(SERVICE_MAY_NOT[case](bus))
    await bus.close()


async def test_an_inbox_of_another_is_refused(nats_server: NatsServer) -> None:
    key = KeyPair.create(KeyKind.USER)
    token = nats_server.authority.participant_jwt("p", "north", key.public)
    await refused(NatsBus.connect(nats_server.url, "p.south", creds=credentials(token, key)))


async def _until_the_end(records: AsyncIterator[Record | None]) -> None:
    async for each in records:
        assert each is None  # nothing is told; the connection breaks before the site is refused


async def test_a_revoked_participant_is_cut_off_and_refused_after_a_restart_of_the_server_too(
    mortal_nats: NatsServer,
) -> None:
    key = KeyPair.create(KeyKind.USER)
    creds = credentials(mortal_nats.authority.participant_jwt("p", "north", key.public), key)
    site = await NatsBus.connect(mortal_nats.url, "p.north", creds=creds)
    other, _ = await mortal_nats.enrol("p", "south")
    coordinator = await mortal_nats.connect(Role.COORDINATOR)
    await coordinator.serve(DOORS[Door.RESULT].wildcard(), _echo, group="g")
    async with site.hear(TELL.of(region="hub", project="p", participant="north")) as records:
        waiting = asyncio.ensure_future(_until_the_end(records))
        await mortal_nats.authority.revoke(key.public, url=mortal_nats.url)
        async with asyncio.timeout(60):
            with pytest.raises(HanseError) as refusal:
                await waiting
    assert refusal.value.code is ErrorCode.UNAUTHENTICATED
    with pytest.raises(HanseError) as again:
        await site.request(door(Door.RESULT), b"x")
    assert again.value.code is ErrorCode.UNAUTHENTICATED
    assert await other.request(door(Door.RESULT, participant="south"), b"x", timeout=60) == b"x"
    await site.close()
    await mortal_nats.restart()
    with pytest.raises(HanseError) as after:
        await NatsBus.connect(mortal_nats.url, "p.north", creds=creds)
    assert after.value.code is ErrorCode.UNAUTHENTICATED
    assert await other.request(door(Door.RESULT, participant="south"), b"x", timeout=60) == b"x"
    await other.close()


async def test_credentials_of_another_hub_are_refused_with_what_to_do(nats_server: NatsServer, tmp_path: Path) -> None:
    creds = BusAuthority(tmp_path).service_credentials(Role.COORDINATOR)
    with pytest.raises(HanseError) as refusal:
        await NatsBus.connect(nats_server.url, "coordinator", creds=creds)
    assert refusal.value.code is ErrorCode.UNAUTHENTICATED
    assert "refused the credentials" in refusal.value.message
    assert refusal.value.hint


async def test_a_connection_without_credentials_is_refused(nats_server: NatsServer) -> None:
    with pytest.raises(HanseError) as refusal:
        await NatsBus.connect(nats_server.url, "coordinator")
    assert refusal.value.code is ErrorCode.UNAUTHENTICATED


async def test_connecting_without_a_server_is_unavailable_at_the_timeout() -> None:
    with pytest.raises(HanseError) as refusal:
        await NatsBus.connect("nats://127.0.0.1:1", "coordinator", timeout=0.5)
    assert refusal.value.code is ErrorCode.UNAVAILABLE


@pytest.fixture
def ca(tmp_path: Path) -> ThrowawayCa:
    return ThrowawayCa(tmp_path)


async def test_tls_wants_the_right_authority_of_both_sides(
    new_nats: Callable[..., NatsServer], ca: ThrowawayCa, tmp_path: Path
) -> None:
    pair, mine = ca.issue("server"), ca.issue("client")
    server = new_nats(tls=ServerTls(pair.cert, pair.key, ca.cert), bare=True)
    context = client_context(ca.cert, mine.cert, mine.key)
    await server.provision(context)
    bus = await server.connect(Role.COORDINATOR, ca=ca.cert, cert=mine.cert, key=mine.key)
    assert await bus.publish(own(JOURNAL), b"x") == 1
    await server.authority.revoke(KeyPair.create(KeyKind.USER).public, url=server.url, tls=context)
    await bus.close()
    with pytest.raises(HanseError) as without:
        await server.connect(Role.COORDINATOR, ca=ca.cert, timeout=20)
    assert without.value.code in (ErrorCode.UNAVAILABLE, ErrorCode.UNAUTHENTICATED)
    stranger = ThrowawayCa(tmp_path, "stranger")
    with pytest.raises(HanseError, match=r"(?i)certificate") as other:
        await server.connect(Role.COORDINATOR, ca=stranger.cert, cert=mine.cert, key=mine.key, timeout=20)
    assert other.value.code is ErrorCode.UNAVAILABLE


def _stream(row: Subject) -> Stream:
    assert row.stream is not None
    return row.stream


async def _echo(subject: str, request: bytes) -> bytes:
    return request


async def test_what_is_rarely_there_is_asked_of_the_streams_leader_alone(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = await nats_server.connect(Role.AGGREGATOR)
    asked: list[str] = []
    call = bus._connection.call

    async def noted(subject: str, data: bytes, **how: Any) -> Any:
        asked.append(subject)
        return await call(subject, data, **how)

    monkeypatch.setattr(bus._connection, "call", noted)
    assert REDUCED.stream is not None
    assert UPDATE.stream is not None
    reduced = REDUCED.of(project="p", run="r", step="s", job="rarely")
    update = UPDATE.of(project="p", run="r", participant="x", digest="0" * 64)
    assert await bus.last(REDUCED.stream, reduced) is None
    assert asked == ["$JS.API.STREAM.MSG.GET.HANSE_REDUCED"]
    await bus.publish(reduced, b"an answer")
    found = await bus.last(REDUCED.stream, reduced)
    assert found is not None
    assert found.data == b"an answer"
    # The control: what mostly is there is read from the copy that is near, and the leader is asked where it is not.
    asked.clear()
    assert await bus.last(UPDATE.stream, update) is None
    assert asked == [f"$JS.API.DIRECT.GET.HANSE_UPDATES.{update}", "$JS.API.STREAM.MSG.GET.HANSE_UPDATES"]
