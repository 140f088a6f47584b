"""The state job against real servers: streams, bucket, the stored version; services that look at it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from hanse_fabric.clock import SystemClock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.state import StateRecord
from hanse_fabric.service import Service
from hanse_fabric.settings import ServiceSettings
from hanse_fabric.state import STATE_VERSION, check_state, read_state, write_state
from hanse_fabric.store.s3 import S3Store
from hanse_fabric.subjects import KEYS, Role
from hanse_operations.__main__ import main
from hanse_operations.servers.seaweedfs import store_keys
from servers import NatsServer


@pytest.fixture(scope="module")
def bare(new_nats: Callable[..., NatsServer]) -> NatsServer:
    return new_nats(bare=True)


def state(server: NatsServer, *argv: str) -> int:
    creds = server.authority.service_credentials(Role.PROVISIONER)
    return main(["state", "--url", server.url, "--creds", str(creds), "--patience", "90", *argv])


def settings(server: NatsServer, **more: object) -> ServiceSettings:
    creds = server.authority.service_credentials(Role.AGGREGATOR)
    return ServiceSettings(bus_url=server.url, bus_creds=creds, **more)  # type: ignore[arg-type]


async def connected(server: NatsServer, **more: object) -> None:
    async with AsyncExitStack() as stack:
        await Service("aggregator", settings(server, **more)).connect(stack)


async def test_a_service_waits_for_the_state_job_and_both_find_the_same_version(
    bare: NatsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = asyncio.create_task(connected(bare, patience=90))
    assert await asyncio.to_thread(state, bare) == 0
    await asyncio.wait_for(waiting, 120)
    assert f"version {STATE_VERSION}" in capsys.readouterr().out
    bus = await bare.connect(Role.COORDINATOR)
    entry = await read_state(bus)
    assert entry is not None
    assert entry.value.version == STATE_VERSION
    await bus.publish(KEYS.of(key="k"), b"kept")
    assert await asyncio.to_thread(state, bare) == 0
    assert KEYS.stream is not None
    assert await bus.last(KEYS.stream, KEYS.of(key="k")) is not None
    await bus.close()


async def test_state_of_release_0_1_0_is_brought_to_version_2_and_that_release_is_refused_on_it(
    new_nats: Callable[..., NatsServer], capsys: pytest.CaptureFixture[str]
) -> None:
    server = await asyncio.to_thread(new_nats)
    bus = await server.connect(Role.PROVISIONER)
    await write_state(bus, StateRecord(version=1, release="0.1.0", at=SystemClock().now()), await read_state(bus))
    with pytest.raises(HanseError, match="has version 1") as waits:
        await check_state(bus)
    assert waits.value.code is ErrorCode.UNAVAILABLE
    assert await asyncio.to_thread(state, server) == 0
    assert "version 2 after 1 migrations" in capsys.readouterr().out
    assert await check_state(bus) == 2
    with pytest.raises(HanseError, match="knows up to 1") as refusal:
        await check_state(bus, known=1)  # as release 0.1.0 calls it
    assert refusal.value.code is ErrorCode.UNKNOWN_SCHEMA
    await bus.close()


async def test_a_downgrade_is_refused_by_the_job_and_by_every_service(
    new_nats: Callable[..., NatsServer], capsys: pytest.CaptureFixture[str]
) -> None:
    server = await asyncio.to_thread(new_nats)
    bus = await server.connect(Role.PROVISIONER)
    newer = StateRecord(version=STATE_VERSION + 1, release="9.9.0", at=SystemClock().now())
    await write_state(bus, newer, await read_state(bus))
    await bus.close()
    assert await asyncio.to_thread(state, server) == ErrorCode.UNKNOWN_SCHEMA.value.exit_status
    told = capsys.readouterr().err
    assert f"version {STATE_VERSION + 1}" in told
    assert "9.9.0" in told
    assert "hint:" in told
    with pytest.raises(HanseError, match=r"9\.9\.0") as refusal:
        await connected(server)
    assert refusal.value.code is ErrorCode.UNKNOWN_SCHEMA


async def test_copies_are_not_asked_of_a_server_that_is_alone(
    nats_server: NatsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await asyncio.to_thread(state, nats_server, "--replicas", "3") == ErrorCode.INVALID_INPUT.value.exit_status
    told = capsys.readouterr().err
    assert "3 copies of each stream are asked for, and the server is alone" in told
    assert "back up, then restore there" in told


async def test_a_service_may_read_the_version_and_not_write_it(nats_server: NatsServer) -> None:
    for role in (Role.COORDINATOR, Role.AGGREGATOR, Role.MODEL_REGISTRY, Role.COMPENSATOR):
        bus = await nats_server.connect(role)
        await read_state(bus)
        with pytest.raises(HanseError) as refusal:
            await write_state(bus, StateRecord(version=2, at=SystemClock().now()), None)
        assert refusal.value.code is ErrorCode.FORBIDDEN
        await bus.close()


def test_the_bucket_of_a_bundled_store_is_made_once(
    bare: NatsServer, weed: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = store_keys(weed.folder)["admin"]
    for name, value in {
        "URL": weed.url, "ACCESS_KEY": pair.access_key, "SECRET_KEY": pair.secret_key, "BUCKET": "made-by-the-job",
    }.items():  # fmt: skip
        monkeypatch.setenv(f"HANSE_STORE_{name}", value)
    assert state(bare, "--make-bucket") == 0
    assert state(bare, "--make-bucket") == 0
    printed = capsys.readouterr()
    assert "made-by-the-job" in printed.out
    assert pair.secret_key not in printed.out + printed.err
    store = S3Store(weed.url, pair.access_key, pair.secret_key, "made-by-the-job")
    store.put("models/x", b"1")
    store.close()


def test_the_state_command_without_an_address_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HANSE_BUS_URL", raising=False)
    assert main(["state", "--creds", str(tmp_path)]) == ErrorCode.INVALID_INPUT.value.exit_status
    assert "HANSE_BUS_URL" in capsys.readouterr().err
