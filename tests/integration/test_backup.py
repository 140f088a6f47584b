"""Backups of the bus against real servers: what comes back, what is refused, what is kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.state import check_state
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.subjects import JOB, JOURNAL, PRESENCE, RUNS, STREAMS, UPDATE, Role
from hanse_operations.__main__ import main
from hanse_operations.backup import backups
from hanse_operations.backup.backups import ORDER, listed, read_manifest
from hanse_operations.backup.snapshots import Link, bring_back
from hanse_operations.servers.seaweedfs import store_keys
from servers import NatsServer

D = "0" * 64
JOURNAL_OF = JOURNAL.of(project="p", run="r")
RUN = RUNS.of(project="p", run="r")


def deploy(server: NatsServer, role: Role, command: str, *argv: str) -> int:
    creds = server.authority.service_credentials(role)
    return main([command, "--url", server.url, "--creds", str(creds), *argv])


def backup(server: NatsServer, folder: Path, *argv: str) -> int:
    return deploy(server, Role.BACKUP, "backup", "--to", str(folder), *argv)


def restore(server: NatsServer, folder: Path, *argv: str) -> int:
    return deploy(server, Role.RESTORER, "restore", "--from", str(folder), *argv)


async def filled(server: NatsServer) -> None:
    bus = await server.connect(Role.COORDINATOR)
    for number in range(3):
        await bus.publish(JOURNAL_OF, f"entry {number}".encode())
    await bus.publish(RUN, b"old")
    await bus.publish(RUN, b"record")
    await bus.publish(JOB.of(project="p", run="r", step="s", job="j"), b"job")
    await bus.close()
    site = await server.connect(Role.AGGREGATOR)
    # Larger than a piece, so that pieces are acknowledged and put together.
    await site.publish(UPDATE.of(project="p", run="r", participant="north", digest=D), bytes(range(256)) * 2000)
    await site.close()


@pytest.fixture(scope="module")
def source(new_nats: Callable[..., NatsServer]) -> NatsServer:
    server = new_nats()
    asyncio.run(filled(server))
    return server


@pytest.fixture(scope="module")
def saved(source: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    assert backup(source, folder) == 0
    return folder


@pytest.fixture
def empty(new_nats: Callable[..., NatsServer]) -> NatsServer:
    return new_nats(bare=True)


async def whole(server: NatsServer) -> None:
    """All that was filled in is there, with its sequences, and can be worked on."""
    bus = await server.connect(Role.COORDINATOR)
    assert JOURNAL.stream is not None
    assert RUNS.stream is not None
    entries = await bus.snapshot(JOURNAL.stream, JOURNAL_OF)
    assert [(entry.sequence, entry.data) for entry in entries] == [(n + 1, f"entry {n}".encode()) for n in range(3)]
    record = await bus.last(RUNS.stream, RUN)
    assert record is not None
    assert (record.sequence, record.data) == (2, b"record")
    with pytest.raises(HanseError) as lost:
        await bus.publish(JOURNAL_OF, b"fenced", expected_last=2)
    assert lost.value.code is ErrorCode.CONFLICT
    assert await bus.publish(JOURNAL_OF, b"entry 3", expected_last=3) == 4
    await bus.close()
    worker = await server.connect(Role.AGGREGATOR)
    assert JOB.stream is not None
    assert UPDATE.stream is not None
    update = await worker.last(UPDATE.stream, UPDATE.of(project="p", run="r", participant="north", digest=D))
    assert update is not None
    assert update.data == bytes(range(256)) * 2000
    async with asyncio.timeout(60), worker.work(JOB.stream) as jobs:
        job = await anext(jobs)
        assert job.record.data == b"job"
        await job.done()
    await worker.close()


def test_all_streams_come_back_on_an_empty_server_as_they_were(
    saved: Path, empty: NatsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert restore(empty, saved) == 0
    assert "state job" in capsys.readouterr().out
    assert deploy(empty, Role.PROVISIONER, "state") == 0
    asyncio.run(whole(empty))


def test_a_restore_goes_ahead_although_the_state_job_has_run(saved: Path, empty: NatsServer) -> None:
    assert deploy(empty, Role.PROVISIONER, "state") == 0
    assert restore(empty, saved) == 0
    assert deploy(empty, Role.PROVISIONER, "state") == 0
    asyncio.run(whole(empty))


def test_a_restore_goes_ahead_although_sites_have_already_reported(
    saved: Path, new_nats: Callable[..., NatsServer]
) -> None:
    server = new_nats()
    asyncio.run(_sign_of_life(server))
    assert restore(server, saved) == 0
    assert deploy(server, Role.PROVISIONER, "state") == 0
    asyncio.run(whole(server))


async def _sign_of_life(server: NatsServer) -> None:
    site = await server.connect(Role.COORDINATOR)
    await site.publish(PRESENCE.of(project="p", participant="north"), b"here")
    await site.close()


def test_streams_that_hold_messages_are_replaced_only_by_force(
    saved: Path, new_nats: Callable[..., NatsServer], capsys: pytest.CaptureFixture[str]
) -> None:
    server = new_nats()
    asyncio.run(_write(server, b"other"))
    assert restore(server, saved) == ErrorCode.CONFLICT.value.exit_status
    assert "HANSE_JOURNAL (1 messages)" in capsys.readouterr().err
    asyncio.run(_holds(server, b"other"))
    assert restore(server, saved, "--force") == 0
    assert deploy(server, Role.PROVISIONER, "state") == 0
    asyncio.run(whole(server))


async def _write(server: NatsServer, data: bytes) -> None:
    bus = await server.connect(Role.COORDINATOR)
    await bus.publish(JOURNAL_OF, data)
    await bus.close()


async def _holds(server: NatsServer, data: bytes) -> None:
    bus = await server.connect(Role.COORDINATOR)
    assert JOURNAL.stream is not None
    assert [one.data for one in await bus.snapshot(JOURNAL.stream, JOURNAL_OF)] == [data]
    await bus.close()


def test_a_file_that_changed_is_found_before_anything_is_touched(
    source: NatsServer, tmp_path: Path, empty: NatsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert backup(source, tmp_path) == 0
    store = DirectoryStore(tmp_path)
    key = f"backups/{listed(store)[0]}/HANSE_UPDATES"
    data = bytearray(store.get(key, limit=1 << 30))
    data[len(data) // 2] ^= 1
    store.put(key, bytes(data))
    assert restore(empty, tmp_path) == ErrorCode.TAMPERED.value.exit_status
    assert "HANSE_UPDATES" in capsys.readouterr().err
    assert deploy(empty, Role.PROVISIONER, "state") == 0  # nothing of the backup is there
    asyncio.run(_is_empty(empty))


async def _is_empty(server: NatsServer) -> None:
    bus = await server.connect(Role.COORDINATOR)
    assert JOURNAL.stream is not None
    assert await bus.snapshot(JOURNAL.stream, JOURNAL_OF) == []
    await bus.close()


def test_a_restore_that_was_cut_short_keeps_services_waiting_and_is_done_again_without_force(
    saved: Path, empty: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert deploy(empty, Role.PROVISIONER, "state") == 0
    brought: list[str] = []

    async def cut_short(link: Link, stream: str, *rest: Any) -> None:
        if len(brought) == 3:
            raise HanseError(ErrorCode.UNAVAILABLE, "cut short")
        brought.append(stream)
        await bring_back(link, stream, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(backups, "bring_back", cut_short)
        assert restore(empty, saved) == ErrorCode.UNAVAILABLE.value.exit_status
    asyncio.run(_waits(empty))
    assert restore(empty, saved) == 0
    assert deploy(empty, Role.PROVISIONER, "state") == 0
    asyncio.run(whole(empty))


async def _waits(server: NatsServer) -> None:
    bus = await server.connect(Role.AGGREGATOR)
    with pytest.raises(HanseError) as refusal:
        await check_state(bus)
    assert refusal.value.code is ErrorCode.UNAVAILABLE
    await bus.close()


@pytest.mark.parametrize("name", ["../../out", "HANSE_OTHER", ""])
def test_a_manifest_that_names_what_is_no_stream_of_the_hub_is_refused(
    saved: Path, tmp_path: Path, empty: NatsServer, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    manifest = read_manifest(DirectoryStore(saved))
    body = manifest.encode().replace(b'"HANSE_JOURNAL"', json.dumps(name).encode())
    DirectoryStore(tmp_path).put(f"backups/{manifest.name}/manifest.json", body)
    assert restore(empty, tmp_path) == ErrorCode.INVALID_INPUT.value.exit_status
    assert repr(name) in capsys.readouterr().err


def test_a_backup_of_a_newer_release_is_refused(source: NatsServer, tmp_path: Path, empty: NatsServer) -> None:
    assert backup(source, tmp_path) == 0
    store = DirectoryStore(tmp_path)
    manifest = read_manifest(store)
    newer = manifest.model_copy(update={"state_version": manifest.state_version + 1})
    store.put(f"backups/{manifest.name}/manifest.json", newer.encode())
    assert restore(empty, tmp_path) == ErrorCode.UNKNOWN_SCHEMA.value.exit_status


def test_the_newest_backups_are_kept_and_one_that_was_cut_short_does_not_count(
    source: NatsServer, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = DirectoryStore(tmp_path)
    manifest = read_manifest(DirectoryStore(saved)).encode()
    for name in ("20200101T000000Z", "20200102T000000Z", "20200103T000000Z"):
        store.put(f"backups/{name}/HANSE_JOURNAL", b"x")
        if name != "20200102T000000Z":
            store.put(f"backups/{name}/manifest.json", manifest)
    assert listed(store) == ["20200101T000000Z", "20200103T000000Z"]
    assert backup(source, tmp_path, "--keep", "2") == 0
    assert len(listed(store)) == 2
    assert listed(store)[0] == "20200103T000000Z"
    assert {key.split("/")[1] for key in store.keys("backups/")} == set(listed(store))
    assert "20200102T000000Z: removed" in capsys.readouterr().out
    assert backup(source, tmp_path, "--keep", "0") == ErrorCode.INVALID_INPUT.value.exit_status


def test_a_backup_goes_to_the_object_store_by_an_identity_of_its_own(
    source: NatsServer,
    empty: NatsServer,
    weed: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pair = store_keys(weed.folder)["backup"]
    for name, value in {"URL": weed.url, "ACCESS_KEY": pair.access_key, "SECRET_KEY": pair.secret_key}.items():
        monkeypatch.setenv(f"HANSE_STORE_{name}", value)
    assert deploy(source, Role.BACKUP, "backup", "--keep", "1") == 0
    assert deploy(empty, Role.RESTORER, "restore", "--list") == 0
    assert deploy(empty, Role.RESTORER, "restore") == 0
    assert deploy(empty, Role.PROVISIONER, "state") == 0
    asyncio.run(whole(empty))
    store = weed.store("backup")
    with pytest.raises(HanseError) as refusal:
        store.get("models/x", limit=1)
    assert refusal.value.code in (ErrorCode.FORBIDDEN, ErrorCode.NOT_FOUND)
    store.close()
    assert pair.secret_key not in "".join(capsys.readouterr())


@pytest.mark.parametrize("role", [Role.BACKUP, Role.RESTORER])
async def test_the_roles_that_save_and_restore_may_not_do_what_services_do(source: NatsServer, role: Role) -> None:
    creds = source.authority.service_credentials(role)
    bus = await NatsBus.connect(source.url, role.value, creds=creds)
    assert RUNS.stream is not None
    for attempt in (bus.publish(RUN, b"x"), bus.last(RUNS.stream, RUN), bus.purge(RUNS.stream, RUN)):
        with pytest.raises(HanseError) as refusal:
            await attempt
        assert refusal.value.code is ErrorCode.FORBIDDEN
    await bus.close()


def test_the_role_that_saves_may_not_restore(source: NatsServer, saved: Path, empty: NatsServer) -> None:
    refused = deploy(empty, Role.BACKUP, "restore", "--from", str(saved))
    assert refused == ErrorCode.FORBIDDEN.value.exit_status
    asyncio.run(_none(empty))


async def _none(server: NatsServer) -> None:
    assert not (server.folder / "jetstream" / "jetstream").exists() or not any(
        (server.folder / "jetstream" / "jetstream").glob("*/streams/*")
    )


def test_an_address_is_no_folder(source: NatsServer, capsys: pytest.CaptureFixture[str]) -> None:
    refused = deploy(source, Role.BACKUP, "backup", "--to", "http://store.example.org")
    assert refused == ErrorCode.INVALID_INPUT.value.exit_status
    assert "HANSE_STORE_URL" in capsys.readouterr().err


def test_the_journals_are_saved_first_and_nothing_is_left_out() -> None:
    assert ORDER[0] == "HANSE_JOURNAL"
    assert sorted(ORDER) == sorted(stream.name for stream in STREAMS)
