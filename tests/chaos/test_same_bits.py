"""Any process is killed at any moment; the model comes out the same to the bit.

One deployment of real processes serves all seeds. Each seed kills, in a random order and at random moments of a run,
the coordinator, an aggregator, the compensator, the registry, nats-server, the object store and a datapod by SIGKILL;
the supervisor starts them again, as Kubernetes would. A masked run is compared with an undisturbed one in ring
arithmetic without masks; even seeds mask by the compensator, odd ones pairwise: by default one run of each. With odd
seeds stored models go to sites as differences to those before, and the undisturbed run's go whole.
`make chaos SEEDS=n` runs as many seeds of each kind as wanted.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio

from e2e.algorithm_jobs import SCHEMA, SITES, write_images
from e2e.digits_runs import digest, files_of
from e2e.killed import kill
from hanse.embedded.deployment import Deployment
from hanse.hub import Run

SERVICES = ["coordinator", "aggregator", "compensator", "model-registry", "nats-server", "object-store"]
ROUNDS = {"inline": 16, "stored": 16, "masked": 15}

SEEDS = os.environ.get("HANSE_CHAOS_SEEDS")
CASES = (
    [(kind, seed) for kind in sorted(ROUNDS) for seed in range(int(SEEDS))]
    if SEEDS
    else [("inline", 0), ("stored", 1), ("masked", 0), ("masked", 1)]
)

# The first fits on the bus, the others go through the object store.
KERNEL = {"name": "cnn", "channels": [4, 8], "hidden": 16, "normalization": "kernel", "kernel": {"final_dropout": 0}}
WIDE = {"name": "mlp", "hidden": [384, 128]}
FEW = {"steps": 6, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 0.05}}
MANY = {"epochs": 2, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9}}
TRAIN = {"inline": FEW, "stored": MANY, "masked": MANY}
MODELS = {"inline": KERNEL, "stored": WIDE, "masked": WIDE}


def job(kind: str, *, disturbed: bool, seed: int) -> dict[str, object]:
    """Each masking mode begins with another model: sites mask a work, and what is near, for one compensator or none."""
    pairwise = kind == "masked" and seed % 2 == 1
    mode = ("pairwise" if pairwise else "compensator") if disturbed else "ring"
    masking = {"secure_aggregation": {"mode": mode}} if kind == "masked" else {}
    ways = (
        {"codec": {"down": [{"name": "delta"}, {"name": "zstd"}]}} if as_differences(kind, seed) and disturbed else {}
    )
    return {
        "rounds": ROUNDS[kind],
        "participants": {"minimum": len(SITES), "deadline": 120},
        "model": MODELS[kind],
        "train": TRAIN[kind],
        "strategy": {"reduction": {"name": "weighted_mean"}, "optimizer": {"name": "adam", "lr": 0.01}},
        "checkpoint_every": 5,
        "seed": 12 if pairwise else 11,
        **masking,
        **ways,
    }


def as_differences(kind: str, seed: int) -> bool:
    """Whether a disturbed run's models go as differences."""
    return kind == "stored" and seed % 2 == 1


@dataclass
class Scene:
    """The deployment, and the digests of undisturbed runs by what they train."""

    deployment: Deployment
    digests: dict[str, str] = field(default_factory=dict)

    async def submit(self, kind: str, *, disturbed: bool, seed: int) -> Run:
        return await asyncio.to_thread(self.deployment.project.run, job(kind, disturbed=disturbed, seed=seed))

    async def undisturbed(self, kind: str, seed: int) -> str:
        training = str(job(kind, disturbed=False, seed=seed))
        if training not in self.digests:
            self.digests[training] = await digest(await self.submit(kind, disturbed=False, seed=seed))
        return self.digests[training]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    folder = tmp_path_factory.mktemp("chaos")
    write_images(folder / "data")
    files = files_of(folder / "data", SITES)
    async with Deployment(folder, "digits", files, SCHEMA) as deployment:
        yield Scene(deployment)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kind", "seed"), CASES)
async def test_killing_every_process_in_turn_does_not_change_a_bit(scene: Scene, kind: str, seed: int) -> None:
    expected = await scene.undisturbed(kind, seed)
    chance = random.Random(f"{seed} {kind}")
    run = await scene.submit(kind, disturbed=True, seed=seed)
    waiting = asyncio.create_task(digest(run))
    victims = [*SERVICES, f"datapod-{chance.choice(SITES)}"]
    chance.shuffle(victims)
    killed: Counter[str] = Counter()
    for victim in victims:
        await asyncio.sleep(chance.uniform(0.05, 0.6))
        if waiting.done():
            break
        await kill(scene.deployment, victim)
        killed[victim] += 1
    assert await waiting == expected, f"killed {list(killed)}; another model than undisturbed"
    assert killed, "the run was over before anything was killed"
    check_no_site_trained_twice(scene.deployment, run, killed, ROUNDS[kind])
    if as_differences(kind, seed):
        fetched = (await asyncio.to_thread(lambda: run.history)).on_the_wire()["store_down"]
        assert fetched < 0.85 * len(SITES) * (ROUNDS[kind] + 1) * run.model.view.size
    await check_audit(scene.deployment, run)


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
