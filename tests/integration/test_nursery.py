"""Datapods and services forked from one process: each a process of its own, however one of them or that one ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import httpx
import psutil
import pytest

from hanse.embedded.deployment import Deployment
from hanse.embedded.hub import EmbeddedHub
from hanse.embedded.nursery import SERVICES, ForkedProcess, Nursery, NurseryKind
from hanse_fabric.identity.secrets import make_join_token

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sites are forked on Linux alone")
OWN = replace(SERVICES, program=(SERVICES.program[0], "hanse_compensator.service"))
"""A nursery of a test's own, which loads one service alone."""
NOBODY = "http://127.0.0.1:9"
ENVIRONMENT = {"HANSE_TOKEN": make_join_token().text}


@pytest.fixture
def sites(shared_sites: None) -> NurseryKind:
    """A nursery of sites that several tests share, as several deployments may: the session's."""
    return Deployment.sites_from


def waiting(home: Path) -> tuple[str, ...]:
    """A datapod that waits for a hub that is not there."""
    data = home.with_suffix(".npz")
    options = ("--home", str(home), "--data", str(data), "--join-url", NOBODY)
    return (sys.executable, "-m", "hanse_datapod", "run", *options)


async def begun(nursery: Nursery, folder: Path, name: str) -> tuple[ForkedProcess, psutil.Process]:
    """A waiting site, and its worker."""
    forked = await nursery.fork(name, waiting(folder / name), ENVIRONMENT, folder / f"{name}.log")
    assert forked is not None
    site = psutil.Process(forked.pid)
    async with asyncio.timeout(60):
        while not site.children():  # noqa: ASYNC110 - another process's doing
            await asyncio.sleep(0.02)
    return forked, site.children()[0]


async def stoppable(site: ForkedProcess) -> None:
    """Return when the site ends in good order at SIGTERM; the worker is there a moment before."""
    async with asyncio.timeout(60):
        while not _caught(site.pid) >> (signal.SIGTERM - 1) & 1:  # noqa: ASYNC110 - another process's doing
            await asyncio.sleep(0.02)


def _caught(pid: int) -> int:
    """The signals that a process has handlers for, a bit for each."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("SigCgt:")).split()[1], 16)


async def gone(process: psutil.Process) -> None:
    async with asyncio.timeout(60):
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)


async def test_a_command_that_ends_tells_its_status_and_writes_its_own_log(sites: NurseryKind, tmp_path: Path) -> None:
    async with Nursery(sites, tmp_path / "nursery.log") as nursery:
        argv = (sys.executable, "-m", "hanse_datapod", "verify-log", "--home", str(tmp_path / "none"))
        forked = await nursery.fork("once", argv, {}, tmp_path / "once.log")
        assert forked is not None
        async with asyncio.timeout(60):
            assert await forked.wait() > 0
    assert "no outbox log" in (tmp_path / "once.log").read_text()


async def test_sites_are_apart_and_one_that_is_killed_takes_its_worker_and_nobody_else(
    sites: NurseryKind, tmp_path: Path
) -> None:
    async with Nursery(sites, tmp_path / "nursery.log") as nursery:
        (north, worker), (south, other) = [await begun(nursery, tmp_path, name) for name in ("north", "south")]
        assert len({north.pid, south.pid, worker.pid, other.pid}) == 4
        assert os.getsid(north.pid) != os.getsid(south.pid)
        north.kill()
        async with asyncio.timeout(60):
            assert await north.wait() == -signal.SIGKILL
        await gone(worker)
        assert south.returncode is None
        assert other.is_running()
        await stoppable(south)
        south.terminate()
        async with asyncio.timeout(60):
            assert await south.wait() == 0
        await gone(other)


async def test_no_site_outlives_the_nursery_and_later_ones_are_started_as_processes(
    sites: NurseryKind, tmp_path: Path
) -> None:
    """Here it is what serves one deployment of a shared one; below a hub's own is killed."""
    async with Nursery(sites, tmp_path / "nursery.log") as nursery:
        forked, worker = await begun(nursery, tmp_path, "north")
        parent = psutil.Process(forked.pid).parent()
        assert parent is not None
        parent.kill()
        async with asyncio.timeout(60):
            assert await forked.wait() == -signal.SIGKILL
        await gone(worker)
        assert await nursery.fork("south", waiting(tmp_path / "south"), {}, tmp_path / "south.log") is None


async def test_the_nursery_forks_nothing_but_datapods(sites: NurseryKind, tmp_path: Path) -> None:
    async with Nursery(sites, tmp_path / "nursery.log") as nursery:
        assert await nursery.fork("other", (sys.executable, "-c", "pass"), {}, tmp_path / "other.log") is None


async def test_services_are_forked_with_their_own_environment_folder_and_log(
    services_nursery: NurseryKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    for place, kind in enumerate((OWN, services_nursery)):
        async with Nursery(kind, tmp_path / "nursery.log") as nursery:
            key, log = Path(f"{place}.key"), tmp_path / f"{place}.log"
            argv = (sys.executable, "-m", "hanse_compensator", "key")
            monkeypatch.chdir(tmp_path / "here")
            forked = await nursery.fork("key", argv, {"HANSE_COMPENSATOR_KEY": str(key)}, log)
            nameless = await nursery.fork("none", argv, {}, tmp_path / f"{place}-none.log")
            assert forked is not None
            assert nameless is not None
            async with asyncio.timeout(60):
                assert await forked.wait() == 0
                assert await nameless.wait() == 1
            assert (tmp_path / "here" / key).exists()
            assert len(log.read_text().strip()) == 44
            assert "the path of the key file must be set" in (tmp_path / f"{place}-none.log").read_text()
            # What an interpreter reads at its start alone cannot be given to a process that is forked.
            assert await nursery.fork("other", argv, {"PYTHONPATH": "/x"}, log) is None


async def test_services_whose_nursery_was_killed_come_back_as_programs(tmp_path: Path) -> None:
    async with EmbeddedHub(tmp_path / "hub", compensators=0, registries=0) as hub:
        before = hub.supervisor.pids()
        nursery = psutil.Process(before["coordinator"]).parent()
        assert nursery is not None
        assert nursery.pid == psutil.Process(before["aggregator"]).ppid() != os.getpid()
        nursery.kill()
        async with asyncio.timeout(120):
            while True:
                with contextlib.suppress(KeyError):
                    if psutil.Process(hub.supervisor.pids()["coordinator"]).ppid() == os.getpid():
                        break
                await asyncio.sleep(0.05)
            async with httpx.AsyncClient() as client:
                while True:
                    with contextlib.suppress(httpx.TransportError):
                        if (await client.get(f"{hub.url}/v1/hub")).is_success:
                            break
                    await asyncio.sleep(0.05)
