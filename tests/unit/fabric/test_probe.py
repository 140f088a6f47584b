"""The probe of container engines: what it takes for life."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from hanse_fabric import probe
from hanse_fabric.health import HealthServer


async def _nothing_missing() -> dict[str, str]:
    return {}


async def _bus_missing() -> dict[str, str]:
    return {"bus": "does not answer"}


async def test_a_service_that_answers_is_alive_and_one_that_lacks_its_bus_is_alive_but_not_ready() -> None:
    server = HealthServer(_bus_missing)
    await server.start("127.0.0.1", 0)
    try:
        assert await asyncio.to_thread(probe.alive, "0.0.0.0", server.port)  # noqa: S104 - what it listens on
        assert not await asyncio.to_thread(probe.alive, "127.0.0.1", server.port, "/readyz")
    finally:
        await server.stop()
    assert not await asyncio.to_thread(probe.alive, "127.0.0.1", server.port)


@pytest.mark.parametrize("mutual", [False, True], ids=["tls", "mutual-tls"])
async def test_a_service_with_a_certificate_is_asked_by_tls(tmp_path: Path, mutual: bool) -> None:
    from certificates import ThrowawayCa
    from hanse_fabric.tls import server_context

    ca = ThrowawayCa(tmp_path)
    pair = ca.issue("service")
    server = HealthServer(_nothing_missing)
    await server.start("127.0.0.1", 0, server_context(pair.cert, pair.key, ca.cert if mutual else None))
    try:
        assert await asyncio.to_thread(probe.alive, "127.0.0.1", server.port, tls=True, mutual=mutual)
        assert not await asyncio.to_thread(probe.alive, "127.0.0.1", server.port)
    finally:
        await server.stop()


@pytest.mark.parametrize("port", ["", "0", "http"])
def test_the_probe_without_a_port_says_what_it_misses(port: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hanse_fabric.probe"],
        env={"HANSE_HEALTH_PORT": port}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, "HANSE_HEALTH_PORT: a port number was expected\n")
