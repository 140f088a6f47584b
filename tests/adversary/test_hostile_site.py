"""One enrolled site that wants to stop the hub, or to hide what it did, with nothing but its own credentials."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from nats.js.api import StreamConfig

from adversary.site_league import League, new_run, presence
from hanse_coordinator import doors
from hanse_coordinator.doors import SiteDoors
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.bus.patient_client import PatientClient
from hanse_fabric.doors import serving
from hanse_fabric.doors.asking import Doors
from hanse_fabric.doors.frames import write_request
from hanse_fabric.doors.serving import Shares
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import DoorRequest
from hanse_fabric.names import derive_id
from hanse_fabric.queue import stream_of
from hanse_fabric.subjects import (
    DOORS,
    EVENT,
    JOURNAL,
    KEYS,
    PROGRESS,
    PROJECTS,
    RESULT,
    TASK,
    TELL,
    UPDATE,
    Door,
    Role,
    Stream,
)  # fmt: skip
from hanse_operations.bus import provision as provisioning
from hanse_operations.bus.provision import provision
from overhearing import with_all_rights
from servers import NatsServer

FILLING = bytes(1 << 19)
ODD = (
    b"HPUB hanse.v1.door.hub.result.triage.bad 16 17\r\nNATS/1.0 100\r\n\r\nx\r\n",
    b"HPUB hanse.v1.door.hub.result.triage.bad 22 23\r\nNATS/1.0 503 \xff\xfe\xff\xfe\xff\r\n\r\nx\r\n",
    b"HPUB hanse.v1.door.hub.result.triage.bad 18 19\r\nNATS/1.0\r\n\xff: \xff\r\n\r\nx\r\n",
    b"PUB hanse.v1.door.hub.result.triage.bad \xff\xfe 1\r\nx\r\n",
)


@pytest.mark.parametrize("odd", ODD, ids=["status", "status's words", "header", "place"])
async def test_a_header_that_is_no_text_silences_no_door(
    league: League, odd: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    site, run = await league.site("bad"), new_run()
    await league.open("bad", run)
    site.write(odd)
    await site.doors.ask(Door.RESULT, b"next", run=run, step="r1-train", timeout=30)
    assert await league.results(run) == {"bad": b"next"}
    assert "nats: encountered error" not in caplog.text


@pytest.mark.control("test_a_header_that_is_no_text_silences_no_door")
async def test_control_nats_pys_own_reader_ends_at_a_header_that_is_no_text(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(PatientClient, "_process_headers")
    async with League(nats_server) as league, asyncio.timeout(60):
        site = await league.site("bad")
        while "nats: encountered error" not in caplog.text:
            site.write(ODD[1])  # again, for the door may not have been open yet
            await asyncio.sleep(0.1)


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


@pytest.mark.control("test_no_record_is_overwritten_by_what_a_site_names_as_the_place_for_its_answers")
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


async def test_a_flood_at_a_door_costs_another_site_nothing_and_is_not_written_down(
    league: League, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "MOST_ANSWERS", 10**6)  # which is another defence
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


@pytest.mark.control("test_a_flood_at_a_door_costs_another_site_nothing_and_is_not_written_down")
async def test_control_without_shares_all_of_a_flood_is_written_down(
    league: League, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "MOST_ANSWERS", 10**6)
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


@pytest.mark.control("test_what_a_site_sends_for_a_step_that_is_not_open_is_not_written_down")
async def test_control_where_every_step_is_taken_for_open_a_site_writes_what_it_likes(
    league: League, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def always(*_: object, **_where: str) -> str:
        return "open"

    monkeypatch.setattr(SiteDoors, "_open_mark", always)
    site, run = await league.site("bad"), new_run()
    for kind, about in ((Door.RESULT, {}), (Door.UPDATE, {"digest": "0" * 64}), (Door.EXCHANGE, {"key": "k"})):
        await site.doors.ask(kind, b"x", run=run, step="r1-train", timeout=30, **about)
    assert await league.results(run) == {"bad": b"x"}


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


@pytest.mark.control("test_a_site_makes_no_consumers")
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
        head = DoorRequest(
            kind="result", project="triage", participant="bad", nonce=f"{number:032x}", run=run, step="r1-train"
        )
        request = write_request(bad.doors.key, head, b"%d" % number)
        await bad.say(own, request, reply="_INBOX.triage.bad.x", **{"Nats-Msg-Id": guessed})
    await bad.doors.ask(Door.PRESENCE, presence(), timeout=30)
    await good.doors.ask(Door.RESULT, b"the answer", run=run, step="r1-train", timeout=30)
    assert (await league.results(run))["good"] == b"the answer"


@pytest.mark.control("test_no_site_silences_another_by_the_id_of_its_message")
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


@pytest.mark.control("test_a_site_hears_and_reads_nothing_of_others")
async def test_control_with_rights_as_wide_as_jetstreams_a_site_reads_events_and_hears_what_others_are_told(
    league: League,
) -> None:
    site = await league.former("bad", "$JS.API.>", hears=(TELL.wildcard(),))
    assert EVENT.stream is not None
    await league.hub.publish(EVENT.of(project="triage", run=new_run()), b"of the good site")
    await asyncio.wait_for(first_of(site, EVENT.stream, EVENT.wildcard()), 30)
    async with site.hear(TELL.wildcard()) as told:
        await anext(told)
        await league.hub.tell(TELL.of(region="hub", project="triage", participant="good"), b"a task of another's")
        heard = await asyncio.wait_for(anext(told), 30)
    assert heard is not None
    assert heard.data == b"a task of another's"


async def test_a_request_that_another_has_signed_is_refused(league: League) -> None:
    bad, good, run = await league.site("bad"), await league.site("good"), new_run()
    await league.open("good", run)
    forged = Doors(bad.bus, "triage", "bad", good.doors.key)
    with pytest.raises(HanseError) as refusal:
        await forged.ask(Door.PRESENCE, presence(), timeout=30)
    assert refusal.value.code is ErrorCode.TAMPERED


@pytest.mark.control("test_a_request_that_another_has_signed_is_refused")
async def test_control_where_no_signature_is_looked_at_a_site_answers_with_anothers_key(
    league: League, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "verify", lambda *_: None)
    bad, good = await league.site("bad"), await league.site("good")
    await Doors(bad.bus, "triage", "bad", good.doors.key).ask(Door.PRESENCE, presence(), timeout=30)


STORAGE = 96 << 20


@asynccontextmanager
async def filled(folder: Path) -> AsyncIterator[tuple[NatsBus, ErrorCode]]:
    """The coordinator's connection to a small bus, on which sites' answers and updates have been written until no more
    are taken, and how that was said; another project's journal is begun."""
    server = NatsServer(folder, storage=STORAGE)
    server.start()
    try:
        creds = server.authority.service_credentials(Role.PROVISIONER).read_text()
        await provision(server.url, creds, storage=STORAGE)
        hub, aggregator = await server.connect(Role.COORDINATOR), await server.connect(Role.AGGREGATOR)
        await hub.publish(OTHERS, b"begun")

        async def fill() -> None:
            for step in range(STORAGE >> 18):
                subject = RESULT.of(project="triage", run="r", step=f"s{step}", participant="bad")
                await hub.publish(subject, FILLING, timeout=2.0)

        with pytest.raises(HanseError) as full:
            await fill()
        with suppress(HanseError):
            for number in range(400):
                update = UPDATE.of(project="triage", run="r", participant="bad", digest=f"{number:064x}")
                await aggregator.publish(update, FILLING, timeout=2.0)
        yield hub, full.value.code
        await aggregator.close()
        await hub.close()
    finally:
        server.kill()


OTHERS = JOURNAL.of(project="other", run="r")


async def test_full_streams_that_sites_write_leave_room_for_journals_and_records(tmp_path: Path) -> None:
    async with filled(tmp_path) as (hub, said):
        assert said is ErrorCode.NO_SPACE
        [before] = [each.sequence for each in await hub.snapshot(stream_of(JOURNAL), OTHERS)]
        assert await hub.publish(OTHERS, bytes(1 << 20), expected_last=before) == before + 1
        assert await hub.publish(PROJECTS.of(project="other"), bytes(1 << 16)) == 1
        assert [each.sequence for each in await hub.snapshot(stream_of(JOURNAL), OTHERS)] == [before, before + 1]


@pytest.mark.control("test_full_streams_that_sites_write_leave_room_for_journals_and_records")
async def test_control_where_streams_have_no_bounds_of_their_own_one_site_leaves_no_room_for_other_projects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounded = provisioning.stream_config

    def unbounded(*given: Any) -> StreamConfig:
        return dataclasses.replace(bounded(*given), max_bytes=-1)

    monkeypatch.setattr(provisioning, "stream_config", unbounded)
    async with filled(tmp_path) as (hub, _):
        for subject in (OTHERS, PROJECTS.of(project="other")):
            with pytest.raises(HanseError) as full:
                await hub.publish(subject, bytes(1 << 19), timeout=2.0)
            assert full.value.code in (ErrorCode.NO_SPACE, ErrorCode.UNAVAILABLE), "a whole store does not even answer"
