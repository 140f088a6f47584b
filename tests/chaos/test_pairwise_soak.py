"""A pairwise run in which sites drop out at random, at any step of the protocol, while the aggregator is killed.

Each round's sum is right, and of exactly those who the round says took part: never a partial sum, and none that is
still masked. `HANSE_SOAK_ROUNDS=200 HANSE_SOAK_SITES=10` is the long one; by default it is short.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hanse
from hanse.embedded.hub import EmbeddedHub
from hanse.hub import Project, Run
from hanse_fabric.messages import Task
from hanse_fabric.tensors.file import read_tensors
from light_sites import TAIL, Array, Fate, LightSite, update_of, weight_of

ROUNDS = int(os.environ.get("HANSE_SOAK_ROUNDS", "3"))
SITES = int(os.environ.get("HANSE_SOAK_SITES", "6"))
SEED = int(os.environ.get("HANSE_SOAK_SEED", "7"))
DROPPING, KILLED = 0.2, 0.25
HOW = {Fate.SILENT: 5, Fate.FAILS: 5, Fate.LATE: 3}


@dataclass
class Chance:
    """Who drops out of which step, and what is killed: by the seed alone. At most a third of the sites drop out of a
    session, so that two thirds are left to unmask its sum."""

    drops: Counter[Fate] = field(default_factory=Counter)

    def fate(self, site: LightSite, task: Task) -> Fate:
        session = task.masking.session if task.masking is not None else task.step
        chance = random.Random(f"{SEED} {session}")
        dropping = [index for index in range(SITES) if chance.random() < DROPPING * 2][: SITES // 3]
        own = random.Random(f"{SEED} {task.step} {site.index}")
        drops = site.index in dropping and own.random() < 0.5
        fate = own.choices([*HOW], [*HOW.values()])[0] if drops else Fate.ANSWERS
        self.drops[fate] += 1
        return fate


@pytest.mark.timeout(120 + 30 * ROUNDS)
async def test_no_round_of_a_pairwise_soak_has_a_wrong_or_a_partial_sum(tmp_path: Path) -> None:
    async with EmbeddedHub(tmp_path / "hub") as hub, asyncio.TaskGroup() as group:
        chance, models = Chance(), dict[int, Array]()
        killing: dict[int, asyncio.Task[None]] = {}

        def begun(number: int) -> None:
            if number not in killing and random.Random(f"{SEED} kill {number}").random() < KILLED:
                killing[number] = group.create_task(kill(hub, number))

        with await asyncio.to_thread(hanse.connect, hub.url, api_key=hub.api_key, patience=60.0) as client:
            project = await asyncio.to_thread(client.projects.create, "soak", schema={"kind": "open"})
            sites = [
                LightSite(index, SITES, tmp_path / f"{index}", hub.compensator_key, chance.fate, models, begun)
                for index in range(SITES)
            ]
            at_work = [
                group.create_task(site.run(hub.url, await asyncio.to_thread(project.invite, site.name)))
                for site in sites
            ]
            run = await asyncio.to_thread(submit, project)
            await asyncio.to_thread(run.wait)
            assert run.state == "completed", f"{run.state}: {run.view.reason}"
            await asyncio.to_thread(run.model.download, tmp_path / "model.safetensors")
            models[ROUNDS + 1] = read_tensors(tmp_path / "model.safetensors")[1]["weight"].astype(np.float64)
            await asyncio.to_thread(check, run, models)
        for task in (*at_work, *killing.values()):
            task.cancel()
    print(f"{ROUNDS} rounds, {dict(chance.drops)}, killed {len(killing)}")
    assert len(chance.drops) > 2, "the soak was too calm"


def submit(project: Project) -> Run:
    start = {"weight": np.zeros(SITES + TAIL, np.float32)}
    participants = {"minimum": 3, "quorum": 0.5, "grace": 1.0, "deadline": 30, "patience": 60, "retries": 20}
    return project.run(
        {
            "rounds": ROUNDS,
            "model": {"name": "logistic"},
            "initial_model": project.upload_model(start),
            "evaluate": {"every": 4},
            "checkpoint_every": 0,
            "participants": participants,
            "secure_aggregation": {"mode": "pairwise", "largest_weight": 100},
        }
    )


async def kill(hub: EmbeddedHub, number: int) -> None:
    """SIGKILL the aggregator at some moment of a round."""
    await asyncio.sleep(random.Random(f"{SEED} when {number}").uniform(0.0, 1.0))
    pid = hub.supervisor.pids().get("aggregator")
    if pid is not None:
        os.kill(pid, signal.SIGKILL)


def check(run: Run, models: dict[int, Array]) -> None:
    """Every round's change is the weighted mean of those who the round says took part."""
    finished = {event.round: event for event in run.watch() if event.kind == "round-finished"}
    assert sorted(finished) == list(range(1, ROUNDS + 1))
    for number, event in finished.items():
        change = models[number + 1] - models[number]
        present = [index for index in range(SITES) if abs(change[index]) > 1e-6]
        assert len(present) >= 3
        assert [f"site-{index:03}" for index in present] == event.data["participants"]
        weights = np.array([weight_of(index) for index in present], dtype=np.float64)
        updates = np.stack([update_of(index, SITES, number) for index in present])
        assert np.abs(change - weights @ updates / weights.sum()).max() < 1e-4
        metrics: dict[str, Any] = event.data["metrics"]
        if number % 4 == 0:
            assert abs(metrics["accuracy"] - 0.5) < 1e-6
