"""A study with many chunks under way, while any process is killed at any moment: the same bits, and nothing summed of
fewer than all cohorts.

Each seed kills, in a random order and at random moments, every service that a study needs, nats-server, the object
store and a datapod by SIGKILL, while two studies are under way at once: one masked by the compensator, one pairwise.
What comes out is compared with a rehearsal in one process. `HANSE_CHAOS_SEEDS` says how many seeds.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from e2e.killed import kill, restart_in
from hanse.embedded.deployment import Deployment, SiteFiles
from hanse.embedded.nursery import Nursery, NurseryKind
from hanse.hub import Run
from hanse_fabric.tensors.file import read_tensors
from hanse_genomics.arrays import Arrays
from hanse_genomics.files import open_cohort
from hanse_genomics.rehearsal import rehearse
from hanse_genomics.simulation import CohortPlan, Covariate, StudyPlan, simulate
from hanse_schemas.study import Study

SEEDS = int(os.environ.get("HANSE_CHAOS_SEEDS", "1"))
MODES = ("compensator", "pairwise")
SERVICES = ["coordinator", "aggregator", "compensator", "nats-server", "object-store"]
COHORTS = ("east", "north", "south")
PLAN = StudyPlan(
    snps=768,
    cohorts=tuple(CohortPlan(name, 40 + 10 * at, 70 - 10 * at) for at, name in enumerate(COHORTS)),
    seed=11,
    missing=0.02,
    covariates=(Covariate("AGE", 60, 10, log_odds=0.3),),
)
SECTION: dict[str, Any] = {"test": "logistic", "covariates": ["AGE"], "sex": True, "chunk": 256, "in_flight": 2}


@dataclass
class Scene:
    """The deployment, and what an undisturbed rehearsal makes."""

    deployment: Deployment
    expected: Arrays


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(
    shared_sites: Path, successors: NurseryKind, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Scene]:
    folder = tmp_path_factory.mktemp("study-chaos")
    simulated = simulate(PLAN, folder / "cohorts")
    study = Study.model_validate(SECTION)
    cohorts = {name: open_cohort(prefix, study, None, covariates(prefix)) for name, prefix in simulated.cohorts.items()}
    expected = (await asyncio.to_thread(rehearse, study, cohorts, folder / "rehearsal")).results
    files = {name: SiteFiles(prefix, covariates=covariates(prefix)) for name, prefix in simulated.cohorts.items()}
    schema = {"kind": "genotypes", "covariates": ["AGE"]}
    policy = {"workflows": ["association_study"]}
    async with (
        Nursery(successors, folder / "successors.log") as others,
        Deployment(folder, "gwas", files, schema, policy=policy, nursery=True) as deployment,
    ):
        await restart_in(deployment.hub, others)
        yield Scene(deployment, expected)


def covariates(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + ".cov")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(SEEDS))
async def test_killing_every_process_within_a_study_does_not_change_a_bit(
    scene: Scene, seed: int, tmp_path: Path
) -> None:
    chance = random.Random(f"study {seed}")
    runs = {mode: await submitted(scene.deployment, mode, 20 + len(MODES) * seed + at) for at, mode in enumerate(MODES)}
    waiting = {mode: asyncio.create_task(asyncio.to_thread(run.wait)) for mode, run in runs.items()}
    victims = [*SERVICES, f"datapod-{chance.choice(COHORTS)}"]
    chance.shuffle(victims)
    met: dict[str, list[str]] = {mode: [] for mode in MODES}
    for victim in victims:
        await asyncio.sleep(chance.uniform(0.05, 0.5))
        for mode, task in waiting.items():
            if not task.done():
                met[mode].append(victim)
        await kill(scene.deployment, victim)
    for mode, run in runs.items():
        await waiting[mode]
        assert run.state == "completed", f"{run.state}: {run.view.reason}; killed {met[mode]}"
        assert len(met[mode]) > 2, "the study was over before anything was killed"
        path = await asyncio.to_thread(run.download, "results", tmp_path / mode)
        found = read_tensors(path)[1]
        assert found.keys() == scene.expected.keys()
        for column, values in scene.expected.items():
            same = np.array_equal(found[column].view(np.uint8), np.ascontiguousarray(values).view(np.uint8))
            assert same, f"{column}: other bits than undisturbed; killed {met[mode]}"
        await check_sums(scene.deployment, run)


async def submitted(deployment: Deployment, mode: str, most: int) -> Run:
    """A study. Sites refuse the same one under other masks, lest two sums tell their part: each has other iterations at
    most."""
    job = {
        "workflow": "association_study", "study": SECTION | {"max_iterations": most},
        "secure_aggregation": {"mode": mode}, "participants": {"minimum": len(COHORTS), "deadline": 120},
    }  # fmt: skip
    return await asyncio.to_thread(deployment.project.run, job)


async def check_sums(deployment: Deployment, run: Run) -> None:
    """Whatever was done again: masks were summed for all cohorts together and for nobody else."""
    events = await asyncio.to_thread(deployment.project.audit)
    sums = [event for event in events if event["action"] == "masks.sum" and run.id in str(event["subject"])]
    assert all(event["detail"]["participants"] == list(COHORTS) for event in sums)
