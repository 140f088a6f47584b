"""Runs of four datapods: by the built-in trainer, and by the sites' own code with something done to it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hanse.embedded.deployment import Deployment, SiteFiles
from hanse.hub import Project, Run
from releases.jobs import CODE, PLAIN, SCHEMA, SITES, fedtan, own
from releases.stage import QUIET_S, Played, Stage, answered, keep_home, present, round_finished, seen, until
from releases.tap import tapped


@dataclass
class Gates:
    """Where a site's own code waits: `hold` before the run, `begun` tells, `release` after."""

    folder: Path

    def path(self, what: str, run: str, site: str, number: int) -> Path:
        return self.folder / f"{what}-{run}-{site}-{number}"

    def hold(self, run: str, site: str, number: int) -> None:
        self.path("hold", run, site, number).touch()

    def release(self, run: str, site: str, number: int) -> None:
        self.path("hold", run, site, number).unlink()

    async def begun(self, run: str, site: str, number: int) -> None:
        await until(lambda: self.path("begun", run, site, number).exists(), f"{site} does not begin {run}")


async def training(folder: Path, played: Played, wanted: Callable[[str], bool]) -> None:
    """Runs of four datapods: the built-in trainer, then the sites' own code with something done to it."""
    gates = Gates(folder / "gates")
    gates.folder.mkdir(parents=True)
    async with trained_sites(folder, gates, played) as (stage, digest):
        project = stage.deployment.project
        if wanted("pairwise-dropout"):  # the first, so that the site's home in its middle is a small one
            await _pairwise(stage, gates, digest)
        for name, body in PLAIN.items():
            if wanted(name):
                more = {}
                if name == "adam" and "averaging" in played.runs:
                    first, data = await uploaded(project, played.runs["averaging"][1], folder)
                    more = {"initial_model": first}
                    played.objects[name] = {f"models/{project.name}/{first}": data}
                await stage.done(name, await stage.submit(body | more))
        for name, act in DISTURBED.items():
            if wanted(name):
                await act(stage, gates, digest)
        keep_home(played, "site-north", stage.deployment.home("north"))


@asynccontextmanager
async def trained_sites(folder: Path, gates: Gates, played: Played) -> AsyncIterator[tuple[Stage, str]]:
    """A stage, and the digest of its sites' own code."""
    code = folder / "code.py"
    code.write_text(CODE.format(gates=str(gates.folder)))
    digest = hashlib.sha256(code.read_bytes()).hexdigest()
    policy = {"site_code": {"digests": [digest]}}
    async with Deployment(folder, "triage", {}, SCHEMA, policy=policy) as deployment, tapped(folder / "hub") as tap:
        rng = np.random.default_rng(5)
        for index, name in enumerate(SITES):
            path = folder / f"{name}.npz"
            size = 20 + 5 * index
            x = (rng.standard_normal((size, 4)) + index).astype(np.float32)
            np.savez(path, x=x, y=np.arange(size, dtype=np.int64) % 3)
            child = await deployment.add_site(name, SiteFiles(path, path))
            child.spec = replace(child.spec, argv=[*child.spec.argv, "--code", str(code)])
        await present(deployment.project, len(SITES))
        yield Stage(deployment, tap, played), digest


async def _site_code(stage: Stage, gates: Gates, digest: str) -> None:
    await stage.done("site-code", await stage.submit(own("site-code", digest)))


async def _pairwise(stage: Stage, gates: Gates, digest: str) -> None:
    """West shares its secrets in the first round and answers too late: its masks are recovered by the others."""
    name = "pairwise-dropout"
    gates.hold(name, "west", 1)
    asked = own(name, digest, participants={"quorum": 0.75, "grace": 1.5})
    run = await stage.submit(asked | {"secure_aggregation": {"mode": "pairwise"}})
    await gates.begun(name, "west", 1)
    await answered(run, "r1-train", "north")
    keep_home(stage.played, "site-north-in-session", stage.deployment.home("north"), run=run.id)
    await round_finished(run, 1)
    gates.release(name, "west", 1)
    await stage.done(name, run)


async def _taken_over(stage: Stage, gates: Gates, digest: str) -> None:
    """The coordinator is killed while a step is open, and its successor ends the run."""
    gates.hold("taken-over", "south", 1)
    run = await stage.submit(own("taken-over", digest))
    await gates.begun("taken-over", "south", 1)
    await answered(run, "r1-train", "north")
    supervisor = stage.deployment.hub.supervisor
    before = supervisor.pids()["coordinator"]
    os.kill(before, signal.SIGKILL)
    await until(lambda: supervisor.pids().get("coordinator", before) != before, "no other coordinator")
    await asyncio.sleep(4)
    gates.release("taken-over", "south", 1)
    await stage.done("taken-over", run)


async def _paused(stage: Stage, gates: Gates, digest: str) -> None:
    """Paused within the first round, and resumed."""
    gates.hold("paused", "south", 1)
    run = await stage.submit(own("paused", digest))
    await gates.begun("paused", "south", 1)
    await asyncio.to_thread(run.pause)
    gates.release("paused", "south", 1)
    await until(lambda: run.refresh().state == "paused", "the run does not pause")
    await asyncio.sleep(QUIET_S)
    await asyncio.to_thread(run.resume)
    await stage.done("paused", run)


async def _cancelled(stage: Stage, gates: Gates, digest: str) -> None:
    gates.hold("cancelled", "south", 2)
    run = await stage.submit(own("cancelled", digest))
    await gates.begun("cancelled", "south", 2)
    await asyncio.to_thread(run.cancel)
    await asyncio.sleep(QUIET_S)
    gates.release("cancelled", "south", 2)
    await stage.done("cancelled", run, "cancelled")


async def _failed(stage: Stage, gates: Gates, digest: str) -> None:
    """Two of four sites fail in the second round, however often they are asked."""
    for name in ("east", "west"):
        gates.path("fail", "failed", name, 2).touch()
    await stage.done("failed", await stage.submit(own("failed", digest, participants={"retries": 1})), "failed")


async def _retried(stage: Stage, gates: Gates, digest: str) -> None:
    """The first who is asked for a first model fails; then two sites fail once in the first round."""
    for at in ("first", "east-1", "west-1"):
        (gates.folder / f"once-retried-{at}").touch()
    await stage.done("retried", await stage.submit(own("retried", digest)))


async def _fedtan_redone(stage: Stage, gates: Gates, digest: str) -> None:
    """West stands still; the others wait for its sums in vain, and do the step again without it."""
    with stage.standing_still("west"):
        terms = {"quorum": 0.75, "minimum": 3}
        run = await stage.submit(fedtan(None, patience=2.0, participants=terms))
        await seen(run, "exchange-broken", lambda _: True)
    await stage.done("fedtan-redone", run)


DISTURBED: dict[str, Callable[[Stage, Gates, str], Awaitable[None]]] = {
    "site-code": _site_code,
    "taken-over": _taken_over,
    "paused": _paused,
    "cancelled": _cancelled,
    "failed": _failed,
    "retried": _retried,
    "fedtan-redone": _fedtan_redone,
}


async def uploaded(project: Project, run: Run, folder: Path) -> tuple[str, bytes]:
    """The first version of a run, uploaded to start from: its digest, and its bytes."""

    def upload() -> tuple[str, bytes]:
        [model] = [one for one in project.models() if one.view.lineage.run == run.id and one.view.lineage.round == 1]
        path = model.download(folder / "first.safetensors")
        return project.upload_model(path), path.read_bytes()

    return await asyncio.to_thread(upload)
