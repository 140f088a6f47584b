"""One enrolled site that wants to stop the hub, or to hide what it did, with nothing but its own credentials."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import zlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from hanse_coordinator.auth import KeyRing, register_bootstrap
from hanse_coordinator.authority import BusCredentials
from hanse_coordinator.boards import PresenceBoard
from hanse_coordinator.records import Buckets
from hanse_fabric.bus.jwt import credentials, user_jwt
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.doors.asking import Doors
from hanse_fabric.doors.frames import write_request
from hanse_fabric.doors.serving import Shares
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.identity.secrets import make_api_key
from hanse_fabric.messages import Asked, Presence, Progress
from hanse_fabric.messages.state import RevocationRecord
from hanse_fabric.names import derive_id
from hanse_fabric.records import Bucket
from hanse_fabric.set_aside import kept
from hanse_fabric.subjects import (
    DOORS,
    EVENT,
    JOURNAL,
    KEYS,
    PRESENCE,
    PROGRESS,
    PROJECTS,
    RESULT,
    REVOCATIONS,
    TASK,
    TELL,
    UPDATE,
    Door,
    Role,
    Stream,
)  # fmt: skip
from hanse_operations.bus.provision import provision
from hanse_site.incoming import Incoming
from hub_doors import hub_doors
from overhearing import with_all_rights
from servers import NatsServer

FILLING = bytes(1 << 19)
RUBBISH = b'{"stream":"HANSE_PROGRESS","seq":7}'
"""What JetStream writes where a site names a record as the place for its acknowledgement."""


def presence(**other: Any) -> bytes:
    said = {
        "schema": "hanse.presence/1", "project": "triage", "participant": "bad", "version": "1",
        "sent_at": SYSTEM_CLOCK.now().isoformat(),
    }  # fmt: skip
    return json.dumps(said | other).encode()


NAIVE = presence(sent_at="2026-05-01T12:00:00")
DEEP = presence().replace(b'"version": "1"', b'"version": ' + b"[" * 100_000 + b"]" * 100_000)
HALF = presence(device="\ud800")
BOMB = zlib.compress(presence()[:-1] + b', "device": [' + b"[]," * 10_000_000 + b"1]}", 9)


@pytest.fixture
async def hub(nats_server: NatsServer) -> AsyncIterator[NatsBus]:
    """The coordinator's connection."""
    creds = nats_server.authority.service_credentials(Role.COORDINATOR)
    bus = await NatsBus.connect(nats_server.url, "coordinator", creds=creds)
    yield bus
    await bus.close()


ODD = (
    b"HPUB hanse.v1.door.hub.result.triage.bad 16 17\r\nNATS/1.0 100\r\n\r\nx\r\n",
    b"HPUB hanse.v1.door.hub.result.triage.bad 22 23\r\nNATS/1.0 503 \xff\xfe\xff\xfe\xff\r\n\r\nx\r\n",
    b"HPUB hanse.v1.door.hub.result.triage.bad 18 19\r\nNATS/1.0\r\n\xff: \xff\r\n\r\nx\r\n",
)


@dataclass
class Site:
    """An enrolled site with its own credentials, and what it can do with them."""

    bus: NatsBus
    doors: Doors

    def write(self, raw: bytes) -> None:
        """Anything at all, on its connection."""
        transport = self.bus._connection.client._transport
        assert transport is not None
        transport.write(raw)

    async def say(self, subject: str, data: bytes, reply: str, **headers: str) -> None:
        await self.bus._connection.client.publish(subject, data, reply=reply, headers=headers or None)


class League:
    """The hub's doors on a real server, and sites of project triage."""

    def __init__(self, server: NatsServer) -> None:
        self.server, self.keys = server, dict[str, bytes]()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> League:
        self.hub, self.aggregator = [
            await self._kept(await self.server.connect(role)) for role in (Role.COORDINATOR, Role.AGGREGATOR)
        ]
        await self._stack.enter_async_context(hub_doors(self.hub, self.aggregator, keys=self.keys))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _kept(self, bus: NatsBus) -> NatsBus:
        self._stack.push_async_callback(bus.close)
        return bus

    async def site(self, name: str) -> Site:
        bus, _ = await self.server.enrol("triage", name)
        key = SigningKey.create()
        self.keys[name] = key.public_bytes
        return Site(await self._kept(bus), Doors(bus, "triage", name, key))

    async def former(self, name: str, *subjects: str) -> NatsBus:
        """A site as release 0.1.0 enrolled it: in the hub's own account. What it may publish there is given."""
        account = KeyPair.from_seed((self.server.authority.folder / "account.seed").read_text())
        key = KeyPair.create(KeyKind.USER)
        granted = {"publish": list(subjects), "subscribe": [f"_INBOX.triage.{name}.>"]}
        creds = credentials(user_jwt(account, key.public, name, granted), key)
        return await self._kept(await NatsBus.connect(self.server.url, f"triage.{name}", creds=creds))

    async def open(self, name: str, run: str, step: str = "r1-train") -> None:
        await self.hub.publish(TASK.of(project="triage", participant=name, run=run, step=step), b"open")

    async def results(self, run: str) -> dict[str, bytes]:
        assert RESULT.stream is not None
        found = await self.hub.snapshot(RESULT.stream, RESULT.wildcard(project="triage", run=run))
        return {RESULT.parse(record.subject)["participant"]: record.data for record in found}


@pytest.fixture
async def league(nats_server: NatsServer) -> AsyncIterator[League]:
    async with League(nats_server) as made:
        yield made


def new_run() -> str:
    return secrets.token_hex(6)


@pytest.mark.parametrize("odd", ODD, ids=["status", "status's words", "header"])
async def test_a_header_that_is_no_text_silences_no_door(league: League, odd: bytes) -> None:
    site, run = await league.site("bad"), new_run()
    await league.open("bad", run)
    site.write(odd)
    await site.doors.ask(Door.RESULT, b"next", run=run, step="r1-train", timeout=30)
    assert await league.results(run) == {"bad": b"next"}


PLACES = (
    PROJECTS.of(project="victim"), KEYS.of(key="victim"), "$JS.API.STREAM.PURGE.HANSE_JOURNAL",
    "$JS.ACK.HANSE_JOBS.aggregators.1.1.1.1.0", "_INBOX.coordinator.x", "hanse.v1.journal.other.r",
)  # fmt: skip


async def test_no_record_is_overwritten_by_what_a_site_names_as_the_place_for_its_answers(league: League) -> None:
    site, run = await league.site("bad"), new_run()
    await league.hub.publish(PROJECTS.of(project="victim"), b"as it was")
    ear = await with_all_rights(league.server.url, league.server.authority.folder)
    heard: list[str] = []

    async def hear(message: Any) -> None:
        heard.append(message.subject)

    for place in PLACES:
        await ear.subscribe(place, cb=hear)
    await ear.flush()
    await league.open("bad", run)
    for place in PLACES:
        for row in DOORS.values():
            await site.say(row.of(region="hub", project="triage", participant="bad"), b"anything", reply=place)
    await site.doors.ask(Door.PRESENCE, presence(), timeout=30)  # all before has been answered
    await ear.flush()
    await ear.close()
    assert heard == []
    assert PROJECTS.stream is not None
    kept_record = await league.hub.last(PROJECTS.stream, PROJECTS.of(project="victim"))
    assert kept_record is not None
    assert kept_record.data == b"as it was"


async def test_control_a_record_was_overwritten_while_sites_wrote_to_jetstream(league: League) -> None:
    own = PROGRESS.of(project="triage", run="r", participant="bad")
    site = await league.former("bad", own)
    place = PROJECTS.of(project=f"victim-{secrets.token_hex(3)}")
    await league.hub.publish(place, b"as it was")
    await site._connection.client.publish(own, b"{}", reply=place)
    assert PROJECTS.stream is not None
    async with asyncio.timeout(30), league.hub.follow(PROJECTS.stream, place) as records:
        while (await anext(records)).data == b"as it was":
            continue


async def test_a_flood_at_a_door_costs_another_site_nothing_and_is_not_written_down(league: League) -> None:
    bad, good, run = await league.site("bad"), await league.site("good"), new_run()
    for name in ("bad", "good"):
        await league.open(name, run)

    async def flood(number: int) -> ErrorCode | None:
        try:
            await bad.doors.ask(Door.RESULT, b"%d" % number, run=run, step="r1-train", timeout=30)
        except HanseError as error:
            return error.code
        return None

    answers = [asyncio.create_task(flood(number)) for number in range(400)]
    await good.doors.ask(Door.RESULT, b"good", run=run, step="r1-train", timeout=30)
    refused = [code for code in await asyncio.gather(*answers) if code is not None]
    assert set(refused) == {ErrorCode.UNAVAILABLE}
    assert len(refused) > 200
    assert (await league.results(run))["good"] == b"good"


async def test_control_without_shares_all_of_a_flood_is_written_down(
    league: League, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Shares, "take", lambda *_: None)
    bad, run = await league.site("bad"), new_run()
    await league.open("bad", run)
    asked = (bad.doors.ask(Door.RESULT, b"%d" % n, run=run, step="r1-train", timeout=30) for n in range(100))
    await asyncio.gather(*asked)
    assert RESULT.stream is not None
    pattern = RESULT.wildcard(project="triage", run=run)
    assert len(await league.hub.snapshot(RESULT.stream, pattern)) == 100


async def test_what_a_site_sends_for_a_step_that_is_not_open_is_not_written_down(league: League) -> None:
    site, run = await league.site("bad"), new_run()
    for kind, about in ((Door.RESULT, {}), (Door.UPDATE, {"digest": "0" * 64}), (Door.EXCHANGE, {"key": "k"})):
        with pytest.raises(HanseError) as refusal:
            await site.doors.ask(kind, b"x", run=run, step="r1-train", timeout=30, **about)
        assert refusal.value.code is ErrorCode.GONE
    assert await league.results(run) == {}


CONSUMER = "$JS.API.CONSUMER.CREATE.HANSE_TASKS.{name}.hanse.v1.task.triage.bad.>"


async def _consumer(bus: NatsBus, name: str) -> Any:
    config = {"name": name, "durable_name": name, "ack_policy": "none", "filter_subject": "hanse.v1.task.triage.bad.>"}
    asked = json.dumps({"stream_name": "HANSE_TASKS", "config": config}).encode()
    return json.loads(await bus.request(CONSUMER.format(name=name), asked, timeout=20))


async def test_a_site_makes_no_consumers(league: League) -> None:
    site = await league.site("bad")
    with pytest.raises(HanseError) as refusal:
        await _consumer(site.bus, "kept")
    assert refusal.value.code is ErrorCode.FORBIDDEN


async def test_control_a_site_made_consumers_that_stay_while_it_followed_its_tasks(league: League) -> None:
    site = await league.former("bad", "$JS.API.CONSUMER.CREATE.HANSE_TASKS.*.hanse.v1.task.triage.bad.>")
    assert "error" not in await _consumer(site, "kept")


async def test_no_site_silences_another_by_the_id_of_its_message(league: League) -> None:
    bad, good, run = await league.site("bad"), await league.site("good"), new_run()
    for name in ("bad", "good"):
        await league.open(name, run)
    subject = RESULT.of(project="triage", run=run, step="r1-train", participant="good")
    ids = [run, subject, derive_id(subject, hashlib.sha256(b"the answer").hexdigest())]
    for number, guessed in enumerate(ids):
        own = DOORS[Door.RESULT].of(region="hub", project="triage", participant="bad")
        head = Asked(
            kind="result", project="triage", participant="bad", nonce=f"{number:032x}", run=run, step="r1-train"
        )
        request = write_request(bad.doors.key, head, b"%d" % number)
        await bad.say(own, request, reply="_INBOX.triage.bad.x", **{"Nats-Msg-Id": guessed})
    await bad.doors.ask(Door.PRESENCE, presence(), timeout=30)
    await good.doors.ask(Door.RESULT, b"the answer", run=run, step="r1-train", timeout=30)
    assert (await league.results(run))["good"] == b"the answer"


async def test_control_a_site_silenced_another_by_the_id_of_its_task(league: League) -> None:
    run = new_run()
    own = {name: RESULT.of(project="triage", run=run, step="s", participant=name) for name in ("bad", "good")}
    bad, good = [await league.former(name, subject) for name, subject in own.items()]
    await bad.publish(own["bad"], b"first", message_id=f"task-of-good-{run}")
    await good.publish(own["good"], b"the answer", message_id=f"task-of-good-{run}")
    assert "good" not in await league.results(run)


async def test_a_site_hears_and_reads_nothing_of_others(league: League) -> None:
    site = await league.site("bad")
    for stream, pattern in ((EVENT.stream, EVENT.wildcard()), (RESULT.stream, RESULT.wildcard()), (TASK.stream, ">")):
        assert stream is not None
        with pytest.raises(HanseError) as refusal:
            await first_of(site.bus, stream, pattern)
        assert refusal.value.code is ErrorCode.FORBIDDEN
    for subject in (TELL.wildcard(), "hanse.v1.event.>", "_INBOX.>", "_R_.>", "$JS.EVENT.>", "$SYS.>", ">"):
        with pytest.raises(HanseError) as refusal:
            await listen(site.bus, subject)
        assert refusal.value.code is ErrorCode.FORBIDDEN


async def first_of(bus: NatsBus, stream: Stream, pattern: str) -> None:
    async with bus.follow(stream, pattern) as records:
        await anext(records)


async def listen(bus: NatsBus, subject: str) -> None:
    async with bus.hear(subject) as told:
        await anext(told)
        await anext(told)


async def test_a_request_that_another_has_signed_is_refused(league: League) -> None:
    bad, good, run = await league.site("bad"), await league.site("good"), new_run()
    await league.open("good", run)
    forged = Doors(bad.bus, "triage", "bad", good.doors.key)
    with pytest.raises(HanseError) as refusal:
        await forged.ask(Door.PRESENCE, presence(), timeout=30)
    assert refusal.value.code is ErrorCode.TAMPERED


async def say(league: League, participant: str, data: bytes) -> None:
    """A site's sign of life, sent by its own credentials."""
    site = await league.site(participant)
    await site.doors.ask(Door.PRESENCE, data, timeout=30)


@pytest.mark.parametrize("message", [NAIVE, DEEP, HALF, BOMB], ids=["naive time", "deep", "half", "bomb"])
async def test_a_sign_of_life_that_cannot_be_read_is_set_aside_and_the_next_site_is_seen(
    league: League, hub: NatsBus, message: bytes
) -> None:
    seen = asyncio.Event()
    board = PresenceBoard(hub, SYSTEM_CLOCK, told=lambda: seen.set() if board.of("triage", "good") else None)
    with pytest.raises(HanseError, match=r"hanse\.presence/1"):
        await say(league, "bad", message)
    await hub.publish(PRESENCE.of(project="triage", participant="bad"), message)  # as a hub of before wrote it down
    await say(league, "good", presence(participant="good"))
    watching = asyncio.create_task(board.watch())
    try:
        await asyncio.wait({watching, asyncio.create_task(seen.wait())}, timeout=20, return_when="FIRST_COMPLETED")
        assert not watching.done(), watching.exception()
    finally:
        watching.cancel()
    assert board.of("triage", "good") is not None
    assert board.of("triage", "bad") is None
    bad = PRESENCE.of(project="triage", participant="bad")
    [found] = [each for each in await kept(hub) if each.subject == bad]
    assert found.size == len(message)
    assert message.startswith(found.head)
    assert found.reason


async def test_a_site_is_told_that_its_progress_was_refused_although_that_has_no_answer(
    league: League, hub: NatsBus, caplog: pytest.LogCaptureFixture
) -> None:
    site, run = await league.site("bad"), new_run()
    about = {"project": "triage", "run": run, "participant": "bad"}
    other = Progress(step="r1-train", fraction=0.5, **(about | {"participant": "good"}))
    async with Incoming(site.doors).open(), asyncio.timeout(20):
        await site.doors.say(Door.PROGRESS, other.encode(), run=run, step="r1-train")
        while "the hub refused what was sent" not in caplog.text:  # noqa: ASYNC110 - a line of a log
            await asyncio.sleep(0.05)
    assert PROGRESS.of(**about) in [each.subject for each in await kept(hub)]


async def test_rubbish_in_place_of_a_record_is_passed_over_and_named(hub: NatsBus) -> None:
    buckets = Buckets.on(hub)
    await hub.publish(PROJECTS.of(project="rubbish"), RUBBISH)
    assert "rubbish" not in [entry.tokens["project"] for entry in await buckets.projects.list()]
    _, unreadable = await buckets.projects.scan()
    assert "rubbish" in [each.tokens["project"] for each in unreadable]
    with pytest.raises(HanseError, match=r"KV\.hanse_projects\.rubbish"):
        await buckets.projects.get(project="rubbish")


async def test_rubbish_in_place_of_the_operators_key_lets_nobody_in_and_the_coordinator_starts(
    hub: NatsBus, tmp_path: Any
) -> None:
    key = make_api_key()
    file = tmp_path / "key"
    file.write_text(key.text)
    buckets = Buckets.on(hub)
    await register_bootstrap(file, buckets.keys, SYSTEM_CLOCK)
    await hub.publish(f"$KV.hanse_keys.{key.id}", RUBBISH)
    await register_bootstrap(file, buckets.keys, SYSTEM_CLOCK)
    ring = KeyRing(buckets.keys, SYSTEM_CLOCK)
    watching = asyncio.create_task(ring.watch())
    try:
        async with asyncio.timeout(20):
            await ring.ready.wait()
        with pytest.raises(HanseError, match="not known"):
            await ring.identify(f"Bearer {key.text}", "10.0.0.1")
    finally:
        watching.cancel()


async def test_rubbish_in_place_of_a_revocation_leaves_the_key_revoked(hub: NatsBus, nats_server: NatsServer) -> None:
    key = KeyPair.create(KeyKind.USER).public
    await Bucket(hub, REVOCATIONS, RevocationRecord).create(RevocationRecord(bus_key=key, at=5), key=key)
    authority = BusCredentials(nats_server.authority, hub, nats_server.url)
    assert (await authority.revoked())[key] == 5
    await hub.publish(REVOCATIONS.of(key=key), RUBBISH)
    assert (await authority.revoked())[key] >= 5


async def test_the_sign_of_life_that_stands_for_all_others_is_read() -> None:
    assert Presence.decode(presence()).participant == "bad"


async def test_full_streams_that_sites_write_leave_room_for_journals_and_records(tmp_path: Any) -> None:
    server, storage = NatsServer(tmp_path, storage=96 << 20), 96 << 20
    server.start()
    try:
        creds = server.authority.service_credentials(Role.PROVISIONER).read_text()
        await provision(server.url, creds, storage=storage)
        hub, aggregator = await server.connect(Role.COORDINATOR), await server.connect(Role.AGGREGATOR)
        before = await hub.publish(JOURNAL.of(project="other", run="r"), b"begun")

        async def fill() -> None:
            for step in range(storage >> 19):
                await hub.publish(RESULT.of(project="triage", run="r", step=f"s{step}", participant="bad"), FILLING)

        with pytest.raises(HanseError) as full:
            await fill()
        assert full.value.code is ErrorCode.NO_SPACE
        for number in range(400):
            await aggregator.publish(
                UPDATE.of(project="triage", run="r", participant="bad", digest=f"{number:064x}"), FILLING
            )
        journal, record = JOURNAL.of(project="other", run="r"), PROJECTS.of(project="other")
        assert await hub.publish(journal, bytes(1 << 20), expected_last=before) == before + 1
        assert await hub.publish(record, bytes(1 << 16)) == 1
        assert [each.sequence for each in await hub.snapshot(JOURNAL.stream, journal)] == [before, before + 1]
        await aggregator.close()
        await hub.close()
    finally:
        server.kill()
