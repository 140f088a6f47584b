"""Runs of sites that a recorder plays itself: dishonest ones, silent ones, and one of a large model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from e2e.deployed import START, DeployedHub, hand_in, honest, site, start_job, tensors
from hanse.hub import Project, Run
from hanse.site import PlainTask
from hanse_fabric.messages import Task, TaskKind
from hanse_fabric.tensors.refs import ref_of_bytes
from light_sites import TAIL, Fate, LightSite
from releases.stage import QUIET_S, Played, present
from releases.tap import tapped


async def spoilt(folder: Path, played: Played, wanted: Callable[[str], bool]) -> None:
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
                if wanted("sharded"):
                    project = await asyncio.to_thread(lambda: client.projects.create("large", schema={"kind": "open"}))
                    played.runs["sharded"] = tap, await asyncio.to_thread(_large_run, project, folder)
                    await asyncio.sleep(QUIET_S)
                for name, (mode, count, fate) in MASKED_RUNS.items():
                    if wanted(name):
                        project = await asyncio.to_thread(
                            lambda: client.projects.create(mode, schema={"kind": "open"})  # noqa: B023 - used at once
                        )
                        body = masked_job(mode)
                        run, objects = await _masked_run(hub, project, folder / name, body, count, fate)
                        played.runs[name], played.objects[name] = (tap, run), objects
                        await asyncio.sleep(QUIET_S)
    finally:
        await asyncio.to_thread(hub.stop)


def _plain_run(project: Project, folder: Path, played: Played) -> Run:
    def bad(task: PlainTask) -> None:
        if task.round == 1:
            hand_in(task, tensors({name: array + 7 for name, array in START.items()}), named)
        else:
            honest()(task)

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


def _large_run(project: Project, folder: Path) -> Run:
    """A model of nine leaves, which is measured and reduced in shards. It is not recorded."""
    start = {"weight": np.zeros(17_000_000, np.float32)}
    with ExitStack() as stack:
        for name, step in (("north", 1.0), ("south", 2.0), ("east", 3.0)):
            stack.enter_context(site(project, name, folder / "large", honest(2, step)))
        body = start_job(project, start, strategy={"reduction": {"name": "krum", "byzantine": 0}},
                         participants={"minimum": 3, "patience": 60.0, "deadline": 240.0})  # fmt: skip
        run = project.run(body).wait()
    assert run.state == "completed", run.view.reason
    return run


def _spoilt(site: LightSite, task: Task) -> Fate:
    """Site 2's update is not what it named, in the first round; site 4 seals no seed in the second."""
    if task.kind is not TaskKind.TRAIN:
        return Fate.ANSWERS
    return {(2, 1): Fate.TAMPERED, (4, 2): Fate.BAD_SEED}.get((site.index, task.round), Fate.ANSWERS)


def _thinned(site: LightSite, task: Task) -> Fate:
    """Two of five share no secrets in the first round: the others make a smaller session. Two do not help to
    unmask in the second: another sum is made."""
    silent = {"r1-train-share": (3, 4), "r2-train-unmask": (0, 1)}
    return Fate.SILENT if site.index in silent.get(task.step, ()) else Fate.ANSWERS


MASKED_RUNS: dict[str, tuple[str, int, Callable[[LightSite, Task], Fate]]] = {
    "compensator-redone": ("compensator", 6, _spoilt),
    "pairwise-redone": ("pairwise", 5, _thinned),
}
"""In this mode, of so many sites, with what becomes of their answers."""


def masked_job(mode: str) -> dict[str, Any]:
    return {
        "rounds": 2, "model": {"name": "logistic"}, "weighting": "uniform", "seed": 5, "evaluate": {"every": 0},
        "participants": {"minimum": 3, "quorum": 0.5, "deadline": 20, "grace": 1.0, "retries": 0},
        "secure_aggregation": {"mode": mode},
    }  # fmt: skip


async def _masked_run(
    hub: DeployedHub,
    project: Project,
    folder: Path,
    body: dict[str, Any],
    count: int,
    fate: Callable[[LightSite, Task], Fate],
) -> tuple[Run, dict[str, bytes]]:
    """A run of light sites, and the objects that it found in the store."""
    models = dict[int, Any]()
    start = {"weight": np.zeros(count + TAIL, np.float32)}
    async with asyncio.TaskGroup() as group:
        at_work = []
        for index in range(count):
            home = folder / f"light-{index}"
            made = LightSite(index, count, home, hub.hub.compensator_key, fate, models, lambda _: None)
            token = await asyncio.to_thread(project.invite, made.name)
            at_work.append(group.create_task(made.run(hub.hub.url, token)))
        digest = await asyncio.to_thread(project.upload_model, start)
        await present(project, count)
        run = await asyncio.to_thread(lambda: project.run(body | {"initial_model": digest}).wait())
        assert run.state == "completed", run.view.reason
        for task in at_work:
            task.cancel()
    return run, {f"models/{project.name}/{digest}": tensors(start)}
