"""What a site says, or what stands on the bus, that cannot be read: it is set aside and named, and stops nobody."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from adversary.site_league import League, new_run, presence
from hanse_coordinator.auth import KeyRing, register_bootstrap
from hanse_coordinator.authority import BusCredentials
from hanse_coordinator.boards import PresenceBoard
from hanse_coordinator.doors import SiteDoors
from hanse_coordinator.records import Buckets
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.bus.port import Record
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.errors import HanseError
from hanse_fabric.identity.secrets import make_api_key
from hanse_fabric.messages import Presence, Progress
from hanse_fabric.messages.state import RevocationRecord
from hanse_fabric.records import Bucket, Entry
from hanse_fabric.set_aside import Aside, kept
from hanse_fabric.subjects import KEYS, PRESENCE, PROGRESS, PROJECTS, REVOCATIONS, Door, Role
from hanse_site.incoming import Incoming
from servers import NatsServer

RUBBISH = b'{"stream":"HANSE_PROGRESS","seq":7}'
"""What JetStream writes where a site names a record as the place for its acknowledgement."""

NAIVE = presence(sent_at="2026-05-01T12:00:00")
DEEP = presence().replace(b'"version": "1"', b'"version": ' + b"[" * 100_000 + b"]" * 100_000)
HALF = presence(device="\ud800")
BOMB = zlib.compress(presence()[:-1] + b', "device": [' + b"[]," * 10_000_000 + b"1]}", 9)


@pytest.fixture
async def hub(nats_server: NatsServer) -> AsyncIterator[NatsBus]:
    """The coordinator's connection."""
    bus = await nats_server.connect(Role.COORDINATOR)
    yield bus
    await bus.close()


async def say(league: League, participant: str, data: bytes) -> None:
    """A site's sign of life, sent by its own credentials."""
    site = await league.site(participant)
    await site.doors.ask(Door.PRESENCE, data, timeout=30)


EACH = pytest.mark.parametrize("message", [NAIVE, DEEP, HALF, BOMB], ids=["naive time", "deep", "half", "bomb"])


async def board_after(league: League, hub: NatsBus, message: bytes) -> tuple[PresenceBoard, BaseException | None]:
    """What a coordinator knows of sites once a bad one has sent a message and a good one a true sign of life; and what
    ended it, if anything did."""
    seen = asyncio.Event()
    board = PresenceBoard(hub, SYSTEM_CLOCK, told=lambda: seen.set() if board.of("triage", "good") else None)
    with pytest.raises(HanseError, match=r"hanse\.presence/2"):
        await say(league, "bad", message)
    await hub.publish(PRESENCE.of(project="triage", participant="bad"), message)  # as a hub of before wrote it down
    await say(league, "good", presence(participant="good"))
    watching, seeing = asyncio.create_task(board.watch()), asyncio.create_task(seen.wait())
    try:
        await asyncio.wait({watching, seeing}, timeout=20, return_when="FIRST_COMPLETED")
        return board, watching.exception() if watching.done() else None
    finally:
        watching.cancel()
        seeing.cancel()


@EACH
async def test_a_sign_of_life_that_cannot_be_read_is_set_aside_and_the_next_site_is_seen(
    league: League, hub: NatsBus, message: bytes
) -> None:
    board, ended = await board_after(league, hub, message)
    assert ended is None
    assert board.of("triage", "good") is not None
    assert board.of("triage", "bad") is None
    bad = PRESENCE.of(project="triage", participant="bad")
    [found] = [each for each in await kept(hub) if each.subject == bad]
    assert found.size == len(message)
    assert message.startswith(found.head)
    assert found.reason


@pytest.mark.control("test_a_sign_of_life_that_cannot_be_read_is_set_aside_and_the_next_site_is_seen")
@EACH
async def test_control_where_nothing_is_set_aside_each_of_them_ends_the_coordinator_at_every_start(
    league: League, hub: NatsBus, message: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def as_it_comes(_: Aside, _subject: str, _data: bytes, error: HanseError, **_how: Any) -> None:
        raise error

    monkeypatch.setattr(Aside, "put", as_it_comes)
    for _ in range(2):
        board, ended = await board_after(league, hub, message)
        assert isinstance(ended, HanseError)
        assert board.of("triage", "bad") is None


def progress_of_another(run: str) -> bytes:
    return Progress(step="r1-train", fraction=0.5, project="triage", run=run, participant="good").encode()


async def test_progress_in_anothers_name_is_set_aside_and_its_site_is_told_although_that_has_no_answer(
    league: League, hub: NatsBus, caplog: pytest.LogCaptureFixture
) -> None:
    site, run = await league.site("bad"), new_run()
    await league.open("bad", run)
    async with Incoming(site.doors).open(), asyncio.timeout(20):
        await site.doors.say(Door.PROGRESS, progress_of_another(run), run=run, step="r1-train")
        while "the hub refused what was sent" not in caplog.text:  # noqa: ASYNC110 - a line of a log
            await asyncio.sleep(0.05)
    subject = PROGRESS.of(project="triage", run=run, participant="bad")
    assert subject in [each.subject for each in await kept(hub)]
    assert PROGRESS.stream is not None
    assert await hub.snapshot(PROGRESS.stream, subject) == []


@pytest.mark.control("test_progress_in_anothers_name_is_set_aside_and_its_site_is_told_although_that_has_no_answer")
async def test_control_where_nobody_looks_whom_it_speaks_of_it_is_written_down(
    league: League, hub: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def any_will_do(*_: Any) -> None:
        return

    monkeypatch.setattr(SiteDoors, "_require_readable", any_will_do)
    site, run = await league.site("bad"), new_run()
    await league.open("bad", run)
    assert PROGRESS.stream is not None
    subject = PROGRESS.of(project="triage", run=run, participant="bad")
    async with asyncio.timeout(20), hub.follow(PROGRESS.stream, subject) as records:
        await site.doors.say(Door.PROGRESS, progress_of_another(run), run=run, step="r1-train")
        assert Progress.decode((await anext(records)).data).participant == "good"


async def test_rubbish_in_place_of_a_record_is_passed_over_and_named(hub: NatsBus) -> None:
    buckets = Buckets.on(hub)
    await hub.publish(PROJECTS.of(project="rubbish"), RUBBISH)
    assert "rubbish" not in [entry.tokens["project"] for entry in await buckets.projects.list()]
    _, unreadable = await buckets.projects.scan()
    assert "rubbish" in [each.tokens["project"] for each in unreadable]
    with pytest.raises(HanseError, match=r"KV\.hanse_projects\.rubbish"):
        await buckets.projects.get(project="rubbish")


def read_as_it_comes(bucket: Bucket[Any], record: Record) -> Entry[Any]:
    return Entry(bucket._message.decode(record.data), record.sequence, bucket._subject.parse(record.subject))


@pytest.mark.control(
    "test_rubbish_in_place_of_a_record_is_passed_over_and_named",
    "test_rubbish_in_place_of_the_operators_key_lets_nobody_in_and_the_coordinator_starts",
    "test_rubbish_in_place_of_a_revocation_leaves_the_key_revoked",
)
async def test_control_where_records_are_read_as_they_come_rubbish_ends_lists_starts_and_revocations(
    hub: NatsBus, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bucket, "_entry", read_as_it_comes)
    buckets, key = Buckets.on(hub), KeyPair.create(KeyKind.USER).public
    rubbish = (PROJECTS.of(project="rubbish"), KEYS.of(key="rubbish"), REVOCATIONS.of(key=key))
    for subject in rubbish:
        await hub.publish(subject, RUBBISH)
    authority = BusCredentials(nats_server.authority, hub, nats_server.url)
    try:
        for start in (buckets.projects.list, KeyRing(buckets.keys, SYSTEM_CLOCK).watch, authority.revoked):
            with pytest.raises(HanseError, match=r"schema: None|not JSON"):
                await asyncio.wait_for(start(), 20)
    finally:
        for subject in rubbish:
            await hub.publish(subject, b"", headers={"KV-Operation": "DEL"})


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


@pytest.mark.no_attack("the honest form of what the attacks change")
async def test_the_sign_of_life_that_stands_for_all_others_is_read() -> None:
    assert Presence.decode(presence()).participant == "bad"
