"""One enrolled site that wants to stop the hub, or to hide what it did, with nothing but its own credentials."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hanse_coordinator.auth import KeyRing, register_bootstrap
from hanse_coordinator.authority import BusCredentials
from hanse_coordinator.boards import PresenceBoard
from hanse_coordinator.records import Buckets
from hanse_fabric.bus.jwt import credentials
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.bus.port import Record
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.secrets import make_api_key
from hanse_fabric.messages import Presence
from hanse_fabric.messages.state import RevocationRecord
from hanse_fabric.records import Bucket
from hanse_fabric.set_aside import kept
from hanse_fabric.subjects import JOURNAL, PRESENCE, PROJECTS, RESULT, REVOCATIONS, UPDATE, Role
from hanse_operations.bus.provision import provision
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
    b"PUB hanse.v1.result.triage.aaaaaaaaaaaa.\xff.bad 1\r\nx\r\n",
    b"HPUB hanse.v1.result.triage.aaaaaaaaaaaa.s.bad 16 17\r\nNATS/1.0 100\r\n\r\nx\r\n",
    b"HPUB hanse.v1.result.triage.aaaaaaaaaaaa.s.bad 22 23\r\nNATS/1.0 503 \xff\xfe\xff\xfe\xff\r\n\r\nx\r\n",
    b"HPUB hanse.v1.result.triage.aaaaaaaaaaaa.s.bad 18 19\r\nNATS/1.0\r\n\xff: \xff\r\n\r\nx\r\n",
)


@pytest.mark.parametrize("odd", ODD, ids=["subject", "status", "status's words", "header"])
async def test_a_subject_or_header_that_is_no_text_silences_nobody_who_follows(
    nats_server: NatsServer, hub: NatsBus, odd: bytes
) -> None:
    key = KeyPair.create(KeyKind.USER)
    token = nats_server.authority.participant_jwt("triage", "bad", key.public)
    creds = credentials(token, key)
    site = await NatsBus.connect(nats_server.url, "triage.bad", creds=creds, inbox_prefix="_INBOX.triage.bad")
    assert RESULT.stream is not None
    try:
        async with asyncio.timeout(20), hub.follow(RESULT.stream, RESULT.wildcard(project="triage")) as records:
            client = site._connection.client
            client._transport.write(odd)
            await site.publish(RESULT.of(project="triage", run="a" * 12, step="next", participant="bad"), odd)
            heard = [record.subject async for record in first_of(records, ".next.bad")]
    finally:
        await site.close()
    assert heard[-1].endswith(".next.bad")


async def first_of(records: AsyncIterator[Record], end: str) -> AsyncIterator[Record]:
    """Records until one whose subject ends so."""
    async for record in records:
        yield record
        if record.subject.endswith(end):
            return


async def say(server: NatsServer, participant: str, data: bytes) -> None:
    """A site's sign of life, sent by its own credentials."""
    key = KeyPair.create(KeyKind.USER)
    token = server.authority.participant_jwt("triage", participant, key.public)
    name = f"triage.{participant}"
    bus = await NatsBus.connect(
        server.url, name, creds=credentials(token, key), inbox_prefix=f"_INBOX.triage.{participant}"
    )
    try:
        await bus.publish(PRESENCE.of(project="triage", participant=participant), data)
    finally:
        await bus.close()


@pytest.mark.parametrize("message", [NAIVE, DEEP, HALF, BOMB], ids=["naive time", "deep", "half", "bomb"])
async def test_a_sign_of_life_that_cannot_be_read_is_set_aside_and_the_next_site_is_seen(
    nats_server: NatsServer, hub: NatsBus, message: bytes
) -> None:
    seen = asyncio.Event()
    board = PresenceBoard(hub, SYSTEM_CLOCK, told=lambda: seen.set() if board.of("triage", "good") else None)
    await say(nats_server, "bad", message)
    await say(nats_server, "good", presence(participant="good"))
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


async def test_rubbish_in_place_of_a_record_is_passed_over_and_named(hub: NatsBus) -> None:
    buckets = Buckets.on(hub)
    await hub.publish(PROJECTS.of(project="rubbish"), RUBBISH)
    assert "rubbish" not in [entry.tokens["project"] for entry in await buckets.projects.list()]
    _, unreadable = await buckets.projects.scan()
    assert [each.tokens["project"] for each in unreadable] == ["rubbish"]
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
        hub, (site, _) = await server.connect(Role.COORDINATOR), await server.enrol("triage", "bad")
        before = await hub.publish(JOURNAL.of(project="other", run="r"), b"begun")

        async def fill() -> None:
            for step in range(storage >> 19):
                await site.publish(RESULT.of(project="triage", run="r", step=f"s{step}", participant="bad"), FILLING)

        with pytest.raises(HanseError) as full:
            await fill()
        assert full.value.code is ErrorCode.NO_SPACE
        for number in range(400):
            await site.publish(
                UPDATE.of(project="triage", run="r", participant="bad", digest=f"{number:064x}"), FILLING
            )
        journal, record = JOURNAL.of(project="other", run="r"), PROJECTS.of(project="other")
        assert await hub.publish(journal, bytes(1 << 20), expected_last=before) == before + 1
        assert await hub.publish(record, bytes(1 << 16)) == 1
        assert [each.sequence for each in await hub.snapshot(JOURNAL.stream, journal)] == [before, before + 1]
        await site.close()
        await hub.close()
    finally:
        server.kill()
