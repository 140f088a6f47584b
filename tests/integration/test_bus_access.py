"""Who may do what on the bus: generated permissions on a real server, revocation, wrong credentials, TLS."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from certificates import ThrowawayCa
from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.bus.jwt import credentials
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.bus.port import Record
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.subjects import (
    EXCHANGED,
    JOB,
    JOURNAL,
    KEYS,
    PRESENCE,
    REDUCED,
    RESULT,
    RUNS,
    TASK,
    UPDATE,
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


async def test_a_participant_may_take_tasks_answer_and_report(nats_server: NatsServer) -> None:
    site, _ = await nats_server.enrol("p", "north")
    coordinator = await nats_server.connect(Role.COORDINATOR)
    await coordinator.publish(own(TASK), b"task")
    assert (await first(site, TASK.stream, TASK.wildcard(project="p", participant="north"))).data == b"task"
    await site.publish(own(RESULT), b"result")
    await site.publish(own(UPDATE), b"update")
    await site.publish(own(PRESENCE), b"presence")
    assert (await first(coordinator, RESULT.stream, RESULT.wildcard(project="p", run="r"))).data == b"result"
    await site.close()
    await coordinator.close()


PARTICIPANT_MAY_NOT: dict[str, Callable[[NatsBus], Awaitable[object]]] = {
    "follow another's tasks": lambda b: first(b, TASK.stream, TASK.wildcard(project="p", participant="south")),
    "follow all tasks of its project": lambda b: first(b, TASK.stream, TASK.wildcard(project="p")),
    "follow all tasks": lambda b: first(b, TASK.stream, "hanse.v1.task.>"),
    "follow results": lambda b: first(b, RESULT.stream, RESULT.wildcard(project="p", participant="north")),
    "follow another project": lambda b: first(b, EXCHANGED.stream, EXCHANGED.wildcard(project="q")),
    "read updates": lambda b: b.last(_stream(UPDATE), own(UPDATE)),
    "read API keys": lambda b: b.last(_stream(KEYS), KEYS.of(key="k")),
    "publish another's result": lambda b: b.publish(own(RESULT, participant="south"), b"x"),
    "publish in another project": lambda b: b.publish(own(RESULT, project="q"), b"x"),
    "publish a task for itself": lambda b: b.publish(own(TASK), b"x"),
    "publish a job": lambda b: b.publish(own(JOB), b"x"),
    "publish a reduction": lambda b: b.publish(own(REDUCED), b"x"),
    "write the journal": lambda b: b.publish(own(JOURNAL), b"x"),
    "write a run": lambda b: b.publish(RUNS.of(project="p", run="r"), b"x"),
    "purge": lambda b: b.purge(_stream(TASK), own(TASK)),
    "serve links": lambda b: b.serve("hanse.v1.link.*.*", _echo, group="g"),
}


@pytest.mark.parametrize("what", PARTICIPANT_MAY_NOT)
async def test_a_participant_is_refused_at_once(nats_server: NatsServer, what: str) -> None:
    site, _ = await nats_server.enrol("p", "north")
    await refused(PARTICIPANT_MAY_NOT[what](site))
    await site.close()


SERVICE_MAY_NOT: dict[tuple[Role, str], Callable[[NatsBus], Awaitable[object]]] = {
    (Role.COORDINATOR, "read an update"): lambda b: b.last(_stream(UPDATE), own(UPDATE)),
    (Role.COORDINATOR, "follow updates"): lambda b: first(b, UPDATE.stream, UPDATE.wildcard()),
    (Role.COORDINATOR, "write a result"): lambda b: b.publish(own(RESULT), b"x"),
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


async def test_a_consumer_request_cannot_have_another_filter_than_its_subject(nats_server: NatsServer) -> None:
    """The permission binds the filter in the subject; the server must hold the body to it."""
    import json

    site, _ = await nats_server.enrol("p", "north")
    subject = f"$JS.API.CONSUMER.CREATE.HANSE_TASKS.x1.{TASK.wildcard(project='p', participant='north')}"
    for filters in ({"filter_subject": "hanse.v1.task.>"}, {"filter_subjects": ["hanse.v1.task.>"]}, {}):
        body = {"stream_name": "HANSE_TASKS", "config": {"name": "x1", "ack_policy": "none", **filters}}
        deadline = asyncio.get_running_loop().time() + 10
        answer = await site._connection.call(subject, json.dumps(body).encode(), deadline=deadline)
        assert "error" in json.loads(answer.data), filters
    await site.close()


async def test_a_revoked_participant_is_cut_off_and_refused_after_a_restart_of_the_server_too(
    mortal_nats: NatsServer,
) -> None:
    key = KeyPair.create(KeyKind.USER)
    creds = credentials(mortal_nats.authority.participant_jwt("p", "north", key.public), key)
    site = await NatsBus.connect(mortal_nats.url, "p.north", creds=creds)
    other, _ = await mortal_nats.enrol("p", "south")
    async with site.follow(_stream(TASK), TASK.wildcard(project="p", participant="north")) as records:
        waiting = asyncio.ensure_future(anext(records))
        await mortal_nats.authority.revoke(key.public, url=mortal_nats.url)
        async with asyncio.timeout(60):
            with pytest.raises(HanseError) as refusal:
                await waiting
    assert refusal.value.code is ErrorCode.UNAUTHENTICATED
    with pytest.raises(HanseError) as again:
        await site.publish(own(RESULT), b"x")
    assert again.value.code is ErrorCode.UNAUTHENTICATED
    await other.publish(own(RESULT, participant="south"), b"x")
    await site.close()
    await mortal_nats.restart()
    with pytest.raises(HanseError) as after:
        await NatsBus.connect(mortal_nats.url, "p.north", creds=creds)
    assert after.value.code is ErrorCode.UNAUTHENTICATED
    await other.publish(own(RESULT, participant="south"), b"x")
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
