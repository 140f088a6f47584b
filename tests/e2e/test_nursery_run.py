"""Sites that were forked from one process train what a site that was started as a program trains, to the bit."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from e2e.killed import kill
from e2e.sites_online import wait_online
from hanse.embedded.deployment import Deployment, SiteFiles
from hanse.embedded.processes import Child
from hanse.hub import Run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sites are forked on Linux alone")
SCHEMA = {"kind": "array", "shape": [8], "task": "classification", "classes": 3}
JOB: dict[str, Any] = {
    "rounds": 2,
    "participants": {"minimum": 2, "deadline": 120, "patience": 120},
    "model": {"name": "mlp", "hidden": [8], "dropout": 0.2},
    "train": {"epochs": 2, "batch_size": 8, "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9}},
    "seed": 5,
}


def write_data(folder: Path) -> dict[str, SiteFiles]:
    folder.mkdir()
    found = {}
    for number, name in enumerate(("north", "south")):
        generator = np.random.default_rng(number)
        file = folder / f"{name}.npz"
        np.savez(file, x=generator.random((24, 8), dtype=np.float32), y=generator.integers(0, 3, 24))
        found[name] = SiteFiles(file, file)
    return found


async def test_forked_sites_end_with_the_same_bits_as_a_program_also_when_one_is_killed(tmp_path: Path) -> None:
    files = write_data(tmp_path / "data")
    async with Deployment(tmp_path / "hub", "small", files, SCHEMA, compensators=0, nursery=True) as deployment:
        assert not {await parent_of(child) for child in deployment.datapods.values()} & {os.getpid()}
        run = await asyncio.to_thread(deployment.project.run, JOB)
        await asyncio.to_thread(_until, run, "round-finished")
        await kill(deployment, "datapod-north")
        forked = await ended(run)
        assert deployment.datapods["north"].restarts == 1
        program = deployment.datapods["south"]  # one will do: what it trains is in the model of both
        program._nursery = None
        await kill(deployment, "datapod-south")
        assert await parent_of(program) == os.getpid()
        await asyncio.to_thread(wait_online, deployment.project, 2)
        assert await ended(await asyncio.to_thread(deployment.project.run, JOB)) == forked


async def parent_of(site: Child) -> int:
    await site.wait_ready(60)
    assert site.pid is not None
    return psutil.Process(site.pid).ppid()


async def ended(run: Run) -> str:
    """The final model's digest."""
    await asyncio.to_thread(run.wait)
    assert run.state == "completed", run.view.reason
    return run.model.digest


def _until(run: Run, kind: str) -> None:
    for event in run.watch():
        if event.kind == kind:
            return
