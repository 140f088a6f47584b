"""By real services: a spoilt answer of three sites leaves two, too few for a sum. All three are asked once more, while
coordinator, compensator and aggregator are killed, and the round's model is the mean of all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

import hanse
from e2e.killed import kill_of
from hanse.embedded.hub import EmbeddedHub
from hanse.hub import Project, Run
from hanse_fabric.messages import Task
from hanse_fabric.tensors.file import read_tensors
from light_sites import TAIL, Array, Fate, LightSite, update_of, weight_of

SITES = 3
AGAIN = "r1-train-s2"


class Spoiling:
    """One answer to a round's first session is another than its site named. The session after it says when it is
    there."""

    def __init__(self) -> None:
        self.again = asyncio.Event()

    def fate(self, site: LightSite, task: Task) -> Fate:
        if task.step == AGAIN:
            self.again.set()
        return Fate.TAMPERED if site.index == 1 and task.step == "r1-train" else Fate.ANSWERS


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedHub]:
    async with EmbeddedHub(tmp_path_factory.mktemp("spoilt") / "hub") as made:
        yield made


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("mode", ["compensator", "pairwise"])
async def test_all_three_are_asked_once_more_although_the_services_are_killed(
    hub: EmbeddedHub, tmp_path: Path, mode: str
) -> None:
    async with asyncio.TaskGroup() as group:
        spoiling, models = Spoiling(), dict[int, Array]()
        with await asyncio.to_thread(hanse.connect, hub.url, api_key=hub.api_key, patience=60.0) as client:
            project = await asyncio.to_thread(client.projects.create, mode, schema={"kind": "open"})
            at_work = []
            for index in range(SITES):
                site = LightSite(
                    index, SITES, tmp_path / f"{index}", hub.compensator_key, spoiling.fate, models, lambda _: None
                )
                token = await asyncio.to_thread(project.invite, site.name)
                at_work.append(group.create_task(site.run(hub.url, token)))
            run = await asyncio.to_thread(submit, project, mode)
            async with asyncio.timeout(90):
                await spoiling.again.wait()
            for victim in ("coordinator", "compensator", "aggregator"):
                await kill_of(hub, victim)
            await asyncio.to_thread(run.wait)
            assert run.state == "completed", f"{run.state}: {run.view.reason}"
            await asyncio.to_thread(run.model.download, tmp_path / "model.safetensors")
            await asyncio.to_thread(check, project, run, mode)
        for task in at_work:
            task.cancel()
    change = read_tensors(tmp_path / "model.safetensors")[1]["weight"].astype(np.float64) - models[1]
    weights = np.array([weight_of(index) for index in range(SITES)], dtype=np.float64)
    updates = np.stack([update_of(index, SITES, 1) for index in range(SITES)])
    assert np.abs(change - weights @ updates / weights.sum()).max() < 1e-4


def submit(project: Project, mode: str) -> Run:
    return project.run(
        {
            "rounds": 1,
            "model": {"name": "logistic"},
            "initial_model": project.upload_model({"weight": np.zeros(SITES + TAIL, np.float32)}),
            "evaluate": {"every": 0},
            "participants": {"minimum": SITES, "deadline": 60, "patience": 60},
            "secure_aggregation": {"mode": mode, "minimum": SITES, "largest_weight": 100},
        }
    )


def check(project: Project, run: Run, mode: str) -> None:
    """All sums were of all three, and the events say why there were two."""
    names = [f"site-{index:03}" for index in range(SITES)]
    summed: dict[str, Any] = {
        entry["detail"]["session"]: entry["detail"]["participants"]
        for entry in project.audit()
        if entry["action"] == "masks.sum"
    }
    assert summed == (dict.fromkeys(("r1-train", AGAIN), names) if mode == "compensator" else {})
    events = list(run.watch())
    [finished] = [event for event in events if event.kind == "round-finished"]
    assert finished.data["participants"] == names
    assert any("the same 3 sites are asked again; refused: site-001" in str(event.data) for event in events)
