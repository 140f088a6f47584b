"""The scenes on which runs are recorded: real servers, real services, and real datapods but for dishonest sites."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from deployed import START, DeployedHub, hand_in, honest, site, start_job, tensors

from hanse.embedded.deployment import Deployment, SiteFiles
from hanse.hub import Project, Run
from hanse.site import SiteTask
from hanse_fabric.messages import Task, TaskKind
from hanse_genomics.simulation import CohortPlan, Covariate, Plan, simulate
from light_sites import TAIL, Fate, LightSite
from releases.jobs import CODE, PLAIN, SCHEMA, SITES, STUDIES, STUDY_SNPS, own, study
from releases.recording import StoredHome
from releases.tap import Tap, tapped

QUIET_S = 2.0
"""How long after a run's end its last notices may come."""


@dataclass
class Played:
    """What came of the scenes: each run's tap and identity, objects that it found in the store, and site homes."""

    runs: dict[str, tuple[Tap, Run]] = field(default_factory=dict)
    objects: dict[str, dict[str, bytes]] = field(default_factory=dict)
    homes: dict[str, tuple[dict[str, Any], StoredHome]] = field(default_factory=dict)


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


@dataclass
class Stage:
    """A deployment whose bus is heard."""

    deployment: Deployment
    tap: Tap
    played: Played

    async def submit(self, body: dict[str, Any]) -> Run:
        return await asyncio.to_thread(self.deployment.project.run, body)

    async def done(self, name: str, run: Run, state: str = "completed") -> None:
        """Wait for the end, and for what is said after it."""
        print(f"{name}: run {run.id}", flush=True)
        await asyncio.to_thread(run.wait)
        assert run.state == state, f"{name}: {run.state}: {run.view.reason}"
        await asyncio.sleep(QUIET_S)
        self.played.runs[name] = self.tap, run


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


DISTURBED: dict[str, Callable[[Stage, Gates, str], Awaitable[None]]] = {
    "site-code": _site_code,
    "taken-over": _taken_over,
    "paused": _paused,
    "cancelled": _cancelled,
    "failed": _failed,
}


async def studies(folder: Path, played: Played, wanted: Callable[[str], bool]) -> None:
    """Association studies of three cohorts, in each mode."""
    plan = Plan(
        snps=STUDY_SNPS,
        cohorts=(CohortPlan("north", 12, 14), CohortPlan("east", 10, 12), CohortPlan("south", 11, 10)),
        seed=7,
        missing=0.01,
        covariates=(Covariate("AGE", 60, 10, log_odds=0.3, trait=0.2),),
    )
    made = simulate(plan, folder / "cohorts")
    files = {
        name: SiteFiles(prefix, phenotypes=prefix.with_name(f"{prefix.name}.pheno"),
                        covariates=prefix.with_name(f"{prefix.name}.cov"))
        for name, prefix in made.cohorts.items()
    }  # fmt: skip
    schema = {"kind": "genotypes", "phenotypes": ["TRAIT"], "covariates": ["AGE"]}
    policy = {"workflows": ["association_study"], "studies": {"masked": False}}
    async with Deployment(folder, "gwas", {}, schema, policy=policy) as deployment, tapped(folder / "hub") as tap:
        for name, data in files.items():
            await deployment.add_site(name, data)
        await present(deployment.project, len(files))
        stage = Stage(deployment, tap, played)
        for name, (section, mode) in STUDIES.items():
            if wanted(name):
                await stage.done(name, await stage.submit(study(section, mode)))
        keep_home(played, "site-study-north", deployment.home("north"))


async def tampered(folder: Path, played: Played, wanted: Callable[[str], bool]) -> None:
    """Plain: east hands in other bytes than it named, in the first round. Masked: one of six does."""
    hub = DeployedHub(folder / "hub")
    await asyncio.to_thread(hub.start)
    try:
        async with tapped(folder / "hub") as tap:
            with hub.client() as client:
                if wanted("tampered"):
                    project = await asyncio.to_thread(lambda: client.projects.create("plain", schema={"kind": "open"}))
                    run = await asyncio.to_thread(_plain_run, project, folder, played)
                    await asyncio.sleep(QUIET_S)
                    played.runs["tampered"] = tap, run
                if wanted("tampered-compensator"):
                    project = await asyncio.to_thread(lambda: client.projects.create("masked", schema={"kind": "open"}))
                    played.runs["tampered-compensator"] = tap, await _masked_run(hub, project, folder, played)
                    await asyncio.sleep(QUIET_S)
    finally:
        await asyncio.to_thread(hub.stop)


def _plain_run(project: Project, folder: Path, played: Played) -> Run:
    def bad(task: SiteTask) -> None:
        if task.round == 1:
            hand_in(task, tensors({name: array + 7 for name, array in START.items()}), named)
        else:
            honest()(task)

    from hanse_fabric.tensors.refs import ref_of_bytes

    named = ref_of_bytes(tensors({name: np.ones_like(array) for name, array in START.items()}))
    with ExitStack() as stack:
        for name, answer in (("north", honest()), ("south", honest(3, 2.0)), ("east", bad)):
            stack.enter_context(site(project, name, folder, answer))
        body = start_job(project, START, rounds=2, participants={"minimum": 2, "patience": 60.0, "deadline": 120.0})
        digest = str(body["initial_model"])
        run = project.run(body).wait()
        assert run.state == "completed", run.view.reason
    played.objects["tampered"] = {f"models/{project.name}/{digest}": tensors(START)}
    return run


async def _masked_run(hub: DeployedHub, project: Project, folder: Path, played: Played) -> Run:
    def fate(site: LightSite, task: Task) -> Fate:
        bad = site.index == 2 and task.kind is TaskKind.TRAIN and task.round == 1
        return Fate.TAMPERED if bad else Fate.ANSWERS

    count, models = 6, dict[int, Any]()
    start = {"weight": np.zeros(count + TAIL, np.float32)}
    async with asyncio.TaskGroup() as group:
        at_work = []
        for index in range(count):
            made = LightSite(
                index, count, folder / f"light-{index}", hub.hub.compensator_key, fate, models, lambda _: None
            )
            token = await asyncio.to_thread(project.invite, made.name)
            at_work.append(group.create_task(made.run(hub.hub.url, token)))
        digest = await asyncio.to_thread(project.upload_model, start)
        body = {
            "rounds": 2, "model": {"name": "logistic"}, "initial_model": digest, "weighting": "uniform", "seed": 5,
            "participants": {"minimum": 3, "quorum": 0.5, "deadline": 120},
            "secure_aggregation": {"mode": "compensator"},
        }  # fmt: skip
        await present(project, count)
        run = await asyncio.to_thread(lambda: project.run(body).wait())
        assert run.state == "completed", run.view.reason
        for task in at_work:
            task.cancel()
    played.objects["tampered-compensator"] = {f"models/{project.name}/{digest}": tensors(start)}
    return run


SCENES = (training, studies, tampered)


async def uploaded(project: Project, run: Run, folder: Path) -> tuple[str, bytes]:
    """The first version of a run, uploaded to start from: its digest, and its bytes."""

    def upload() -> tuple[str, bytes]:
        [model] = [one for one in project.models() if one.view.lineage.run == run.id and one.view.lineage.round == 1]
        path = model.download(folder / "first.safetensors")
        return project.upload_model(path), path.read_bytes()

    return await asyncio.to_thread(upload)


def keep_home(played: Played, name: str, home: Path, **header: Any) -> None:
    """Remember the files of a site's home folder, but for what is only space or only a copy."""
    files = {
        str(path.relative_to(home)): (path.stat().st_mode & 0o777, path.read_bytes())
        for path in sorted(home.rglob("*"))
        if path.is_file() and path.suffix != ".reserve" and path.parent.name != "cache"
    }
    played.homes[name] = header, StoredHome({}, files)


async def answered(run: Run, step: str, name: str) -> None:
    """Return when the site's answer to the step is in."""
    await seen(run, "task-answered", lambda event: (event.data["step"], event.data["participant"]) == (step, name))


async def round_finished(run: Run, number: int) -> None:
    await seen(run, "round-finished", lambda event: event.round == number)


async def seen(run: Run, kind: str, fits: Callable[[Any], bool]) -> None:
    def look() -> bool:
        return any(event.kind == kind and fits(event) for event in run.watch())

    assert await asyncio.to_thread(look), f"the run ended without {kind}: {run.refresh().view.reason}"


async def present(project: Project, count: int) -> None:
    """Return when so many sites are online."""
    await until(lambda: sum(view.online for view in project.participants()) >= count, "the sites do not come")


async def until(true: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + 120
    while not await asyncio.to_thread(true):
        assert time.monotonic() < end, otherwise
        await asyncio.sleep(0.05)
