"""Any process is killed at any moment; the model comes out the same to the bit.

One deployment of real processes serves all seeds. Each seed kills, in a random order and at random moments of runs that
are under way at once, the coordinator, an aggregator, the compensator, the registry, nats-server, the object store and
a datapod by SIGKILL; the supervisor starts them again, as Kubernetes would. Each is compared with an undisturbed run
in memory, where masked sums are made in ring arithmetic without masks, and models go whole, while stored ones go to the
deployed sites as differences to those before. `make chaos SEEDS=n` kills as often as wanted.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from e2e.algorithm_jobs import SCHEMA, SITES, write_images
from e2e.digits_runs import digest, files_of, submit
from e2e.jobs_in_memory import digest_in_memory
from e2e.killed import kill, restart_as_programs, restart_in
from hanse.embedded.deployment import Deployment
from hanse.embedded.nursery import Nursery, NurseryKind
from hanse.hub import Run

SERVICES = ["coordinator", "aggregator", "compensator", "model-registry", "nats-server", "object-store"]
ROUNDS = {"inline": 6, "stored": 12, "compensator": 6, "pairwise": 6}
AT_ONCE = [["stored"], ["inline", "compensator", "pairwise"]]
"""Kinds of runs. A site keeps two models: where several runs take turns there is none that another one differs from."""
SEEDS = int(os.environ.get("HANSE_CHAOS_SEEDS", "1"))

# The first fits on the bus, the others go through the object store.
KERNEL = {"name": "cnn", "channels": [4, 8], "hidden": 16, "normalization": "kernel", "kernel": {"final_dropout": 0}}
WIDE = {"name": "mlp", "hidden": [384, 128]}
PLAIN = {"steps": 3, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 0.05}}
DIFFERENCES = {"codec": {"down": [{"name": "delta"}, {"name": "zstd"}]}}
MOMENTUM = {"steps": 4, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9}}


def job(kind: str) -> dict[str, Any]:
    """Each masking mode begins with another model: sites mask a work, and what is near, for one compensator or none."""
    masking = {"secure_aggregation": {"mode": kind}} if kind in ("compensator", "pairwise") else {}
    return {
        "rounds": ROUNDS[kind],
        "participants": {"minimum": len(SITES), "deadline": 120},
        "model": KERNEL if kind == "inline" else WIDE,
        "train": PLAIN if kind == "inline" else MOMENTUM,
        "strategy": {"reduction": {"name": "weighted_mean"}, "optimizer": {"name": "adam", "lr": 0.01}},
        "checkpoint_every": 5,
        "evaluate": {"every": 2},
        "seed": 12 if kind == "pairwise" else 11,
        **masking,
    }


@dataclass(frozen=True)
class Scene:
    """The deployment, the digests of undisturbed runs by kind, and where what is killed may start again."""

    deployment: Deployment
    digests: dict[str, str | None]
    others: Nursery


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(
    shared_sites: Path, successors: NurseryKind, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Scene]:
    folder = tmp_path_factory.mktemp("chaos")
    write_images(folder / "data")
    files = files_of(folder / "data", SITES)
    async with (
        Nursery(successors, folder / "successors.log") as others,
        Deployment(folder, "digits", files, SCHEMA, nursery=True) as deployment,
    ):
        training = {name: each.train for name, each in files.items()}
        digests = {
            kind: await asyncio.to_thread(digest_in_memory, job(kind), SCHEMA, training)
            for kinds in AT_ONCE
            for kind in kinds
        }
        yield Scene(deployment, digests, others)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("kinds", AT_ONCE, ids="-".join)
async def test_killing_every_process_in_turn_does_not_change_a_bit(scene: Scene, kinds: list[str], seed: int) -> None:
    deployment, chance = scene.deployment, random.Random(f"{seed} {kinds}")
    await (restart_in(deployment.hub, scene.others) if kinds == ["stored"] else restart_as_programs(deployment.hub))
    runs = {kind: await submit(deployment, job(kind) | (DIFFERENCES if kind == "stored" else {})) for kind in kinds}
    waiting = {kind: asyncio.create_task(digest(run)) for kind, run in runs.items()}
    victims = [*SERVICES, f"datapod-{chance.choice(SITES)}"]
    chance.shuffle(victims)
    killed: Counter[str] = Counter()
    met: dict[str, list[str]] = {kind: [] for kind in kinds}
    begun = 0
    for number, victim in enumerate(victims):
        # Kills are spread over the rounds, on any machine, and yet two meet: the first is not always back.
        if number % 2 == 0:
            begun = await later_than(begun, deployment, runs, waiting)
        await asyncio.sleep(chance.uniform(0.05, 0.6))
        for kind, task in waiting.items():
            if not task.done():
                met[kind].append(victim)
        await kill(deployment, victim)
        killed[victim] += 1
    for kind, run in runs.items():
        assert await waiting[kind] == scene.digests[kind], f"{kind}: killed {met[kind]}; another model than undisturbed"
        assert met[kind], f"the {kind} run was over before anything was killed"
        check_no_site_trained_twice(deployment, run, killed, ROUNDS[kind])
        await check_audit(deployment, run)
    if "stored" in runs:
        fetched = (await asyncio.to_thread(lambda: runs["stored"].history)).on_the_wire()["store_down"]
        assert fetched < 0.85 * len(SITES) * (ROUNDS["stored"] + 1) * runs["stored"].model.view.size


async def later_than(
    begun: int, deployment: Deployment, runs: dict[str, Run], waiting: dict[str, asyncio.Task[str]]
) -> int:
    """How often sites have begun to train, once that is more often than it was, or all runs are over."""
    while True:
        steps = [step for run in runs.values() for site in SITES for step in begun_steps(deployment.home(site), run.id)]
        now = sum("train" in step for step in steps)
        if now > begun or all(task.done() for task in waiting.values()):
            return now
        await asyncio.sleep(0.02)


def check_no_site_trained_twice(deployment: Deployment, run: Run, killed: Counter[str], rounds: int) -> None:
    """A site begins a round's training once; a killed one may begin one more for each time that it was killed."""
    for site in SITES:
        begun = Counter(step for step in begun_steps(deployment.home(site), run.id))
        again = sum(count - 1 for count in begun.values())
        assert again <= killed[f"datapod-{site}"], f"{site} began again: {begun.most_common(3)}"
        trained = {step for step in begun if "train" in step}
        assert len(trained) == rounds


def begun_steps(home: Path, run_id: str) -> list[str]:
    """The steps that a site's journal says were begun."""
    texts = (line.partition(" ")[2] for line in (home / "journal.jsonl").read_text().splitlines())  # a checksum first
    lines = [json.loads(text) for text in texts if text.endswith("}")]
    return [line["step"] for line in lines if line["kind"] == "begun" and line["run"] == run_id]


async def check_audit(deployment: Deployment, run: Run) -> None:
    """The audit tells who submitted the run, and how it ended."""
    events = await asyncio.to_thread(deployment.project.audit)
    actions = [event["action"] for event in events if run.id in str(event["subject"])]
    assert "run.submit" in actions
    assert any(action.startswith("run.complete") for action in actions), actions
