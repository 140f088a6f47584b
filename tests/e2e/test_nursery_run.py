"""Sites that were forked from one process train what sites that were started one by one train, to the bit."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from hanse.embedded.deployment import Deployment, SiteFiles
from hanse.hub import Run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sites are forked on Linux alone")
SCHEMA = {"kind": "array", "shape": [8], "task": "classification", "classes": 3}
JOB: dict[str, Any] = {
    "rounds": 3,
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


async def digest_of(folder: Path, *, nursery: bool) -> str:
    async with Deployment(folder, "small", write_data(folder), SCHEMA, compensators=0, nursery=nursery) as deployment:
        await deployment.datapods["north"].wait_ready(60)
        site = deployment.datapods["north"].pid
        assert site is not None
        parent = psutil.Process(site).parent()
        assert parent is not None
        assert (parent.pid == os.getpid()) is not nursery
        run = await asyncio.to_thread(deployment.project.run, JOB)
        if nursery:
            await asyncio.to_thread(_until, run, "round-finished")
            os.kill(site, signal.SIGKILL)
        await asyncio.to_thread(run.wait)
        assert run.state == "completed", run.view.reason
        if nursery:
            assert deployment.datapods["north"].restarts == 1
        return run.model.digest


def _until(run: Run, kind: str) -> None:
    for event in run.watch():
        if event.kind == kind:
            return


async def test_forked_sites_end_with_the_same_bits_also_when_one_is_killed(tmp_path: Path) -> None:
    alone = await digest_of(tmp_path / "alone", nursery=False)
    assert await digest_of(tmp_path / "forked", nursery=True) == alone
    assert not [process for process in psutil.Process().children(recursive=True) if "nursery" in process.name()]
