"""Devices through real processes: pools' workers, an aggregator on torch, jobs that ask, and what the owner is told."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

from hanse.embedded.deployment import Deployment, SiteFiles
from hanse.hub import Run

SCHEMA = {"kind": "array", "shape": [4], "task": "classification", "classes": 2}
JOB: dict[str, Any] = {
    "rounds": 2,
    "participants": {"minimum": 1, "deadline": 240, "patience": 240},
    "model": {"name": "mlp", "hidden": [6]},
    "strategy": {"reduction": {"name": "median"}},
    "seed": 3,
}


def write_data(file: Path) -> dict[str, SiteFiles]:
    rng = np.random.default_rng(0)
    np.savez(file, x=rng.random((20, 4), dtype=np.float32), y=rng.integers(0, 2, 20))
    return {"north": SiteFiles(file, file)}


@asynccontextmanager
async def pool_worker(home: Path) -> AsyncIterator[None]:
    """A worker of a site's pool, as its administrator starts it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hanse_datapod.worker.pool", "--pool", "large", "--folder", str(home / "pools"),
        env={"HANSE_HEALTH_PORT": "0", "HANSE_DEVICE": "cpu"},
    )  # fmt: skip
    try:
        yield
    finally:
        process.terminate()
        async with asyncio.timeout(60):
            assert await process.wait() == 0


async def done(deployment: Deployment, resources: dict[str, Any] | None) -> Run:
    train = {"epochs": 1} if resources is None else {"epochs": 1, "resources": resources}
    run = await asyncio.to_thread(deployment.project.run, JOB | {"train": train})
    async with asyncio.timeout(300):
        await asyncio.to_thread(run.wait)
    return run


def said(run: Run) -> set[str]:
    return {
        str(event.data["reason"]) for event in run.watch() if event.kind == "task-answered" and "reason" in event.data
    }


async def devices(deployment: Deployment) -> dict[str, str]:
    """What sites say of their devices, once they have looked."""
    async with asyncio.timeout(90):
        while True:
            listed = await asyncio.to_thread(deployment.project.participants)
            if all(one.device.startswith("cpu (HANSE_DEVICE is cuda, but torch") for one in listed):
                return {one.participant: one.device for one in listed}
            await asyncio.sleep(0.2)


async def test_jobs_run_where_their_sites_have_room_and_owners_see_on_what(tmp_path: Path) -> None:
    pools = tmp_path / "pools.yaml"
    pools.write_text("pools: [{name: large, device: cpu, memory_gib: 4096}]")
    settings = {"HANSE_POOLS": str(pools), "HANSE_DEVICE": "cuda", "HANSE_REDUCE_DEVICE": "torch-cpu"}
    sites = write_data(tmp_path / "data.npz")
    async with Deployment(
        tmp_path / "hub",
        "devices",
        sites,
        SCHEMA,
        compensators=0,
        settings=settings,
        nursery=True,
        policy={"minimum_participants": 1},
    ) as deployment:
        async with pool_worker(deployment.home("north")):
            plain, pooled = await done(deployment, None), await done(deployment, {"memory_gib": 4000})
        refused = await done(deployment, {"device": "gpu"})
        assert plain.state == pooled.state == "completed", (plain.view.reason, pooled.view.reason)
        # This torch is built without CUDA, so the datapods' own workers fall back to the processor; pools do not matter
        # here.
        assert plain.model.digest == pooled.model.digest
        assert all("HANSE_DEVICE is cuda, but torch" in reason for reason in said(plain))
        assert (len(said(plain)), said(pooled)) == (1, set())
        assert list(plain.model.view.lineage.reduced_on or ()) == ["torch-cpu"]
        assert refused.state == "failed"
        assert "device gpu is asked for; this site has local (cpu" in refused.view.reason
        shown = await devices(deployment)
        assert set(shown) == {"north"}
        assert "; pool large (cpu, 4096 GiB): " in shown["north"]
