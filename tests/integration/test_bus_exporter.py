"""A nats-server's storage, clients and leader as metrics, from its monitoring port; and that it is gone."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.telemetry import catalogue
from hanse_operations.bus.exporter import BusExporter, set_gauges
from hanse_operations.servers.nats import nats_program
from hanse_operations.servers.program import free_ports


@pytest.fixture
async def monitored(tmp_path: Path) -> AsyncIterator[tuple[str, subprocess.Popen[bytes]]]:
    """A server's monitoring address, and its process."""
    port, monitoring = free_ports(2)
    program = nats_program(tmp_path, BusAuthority(tmp_path / "authority"), port=port, monitoring_port=monitoring)
    with (tmp_path / "log").open("wb") as log:
        process = await asyncio.to_thread(subprocess.Popen, program.argv, stdout=log, stderr=log)
    try:
        async with asyncio.timeout(60):
            while not await asyncio.to_thread(program.answers):  # noqa: ASYNC110 - a process's start has no event
                await asyncio.sleep(0.02)
        yield f"http://127.0.0.1:{monitoring}", process
    finally:
        process.kill()
        process.wait(30)


async def test_a_servers_state_is_shown_and_that_it_is_gone(monitored: tuple[str, subprocess.Popen[bytes]]) -> None:
    url, process = monitored
    exporter = BusExporter(url)
    try:
        async with asyncio.timeout(60):
            while await exporter.missing():  # noqa: ASYNC110 - it listens for clients before it does for us
                await asyncio.sleep(0.02)
        assert catalogue.BUS_UP.value() == 1
        assert catalogue.BUS_LEADER.value() == 1, "a server alone leads itself"
        assert catalogue.BUS_STORAGE_LIMIT.value() > 0
        process.kill()
        await asyncio.to_thread(process.wait, 30)
        assert await exporter.missing() == {"nats": "does not answer"}
        assert catalogue.BUS_UP.value() == 0
    finally:
        await exporter.close()


def test_a_cluster_without_a_leader_is_shown_as_such() -> None:
    set_gauges({"connections": 3}, {"storage": 5, "config": {"max_storage": 10}, "meta_cluster": {"name": "c"}})
    assert catalogue.BUS_LEADER.value() == 0
    assert (catalogue.BUS_STORAGE.value(), catalogue.BUS_STORAGE_LIMIT.value()) == (5, 10)
    set_gauges({}, {"storage": 5, "meta_cluster": {"name": "c", "leader": "nats-1"}})
    assert catalogue.BUS_LEADER.value() == 1


def test_a_servers_own_certificate_is_watched() -> None:
    soon = datetime.now(UTC) + timedelta(days=3)
    set_gauges({"tls_cert_not_after": soon.strftime("%Y-%m-%dT%H:%M:%SZ")}, {})
    left = catalogue.CERTIFICATE.value(service="nats", certificate="server")
    assert timedelta(days=2).total_seconds() < left <= timedelta(days=3).total_seconds()
