"""Sites of a study that are killed in the middle of a chunk, and one whose files are wrong, by real processes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import pytest_asyncio

from hanse.embedded.deployment import Deployment, SiteFiles
from hanse.hub import Run
from hanse_datapod.home.outbox import verify_log
from hanse_fabric.tensors.file import read_tensors
from hanse_genomics.files import open_cohort
from hanse_genomics.rehearsal import Rehearsed, rehearse
from hanse_genomics.simulation import CohortPlan, Covariate, Simulated, StudyPlan, simulate
from hanse_schemas.study import Study

SECTION = {"test": "chi_square", "chunk": 256, "in_flight": 3}
SCHEMA = {"kind": "genotypes", "phenotypes": ["TRAIT"], "covariates": ["AGE"]}
WRONG = {"test": "linear", "phenotype": "TRAIT", "covariates": ["AGE"]}

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    cohorts = (CohortPlan("north", 40, 50), CohortPlan("east", 40, 60), CohortPlan("south", 50, 40))
    plan = StudyPlan(snps=4096, cohorts=cohorts, seed=3, missing=0.01, covariates=(Covariate("AGE", 60, 10),))
    return simulate(plan, tmp_path_factory.mktemp("cohorts"), pooled_files=False)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def deployment(simulated: Simulated, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployment]:
    files = {
        name: SiteFiles(prefix, phenotypes=beside(prefix, ".pheno"), covariates=beside(prefix, ".cov"))
        for name, prefix in simulated.cohorts.items()
    }
    policy = {"workflows": ["association_study"]}
    folder = tmp_path_factory.mktemp("sites")
    async with Deployment(folder, "gwas", files, SCHEMA, policy=policy, nursery=True) as started:
        yield started


def beside(prefix: Path, ending: str) -> Path:
    return prefix.with_name(prefix.name + ending)


def rehearsed(simulated: Simulated, folder: Path) -> Rehearsed:
    study = Study.model_validate(SECTION)
    return rehearse(study, {name: open_cohort(prefix, study) for name, prefix in simulated.cohorts.items()}, folder)


async def submitted(deployment: Deployment, section: dict[str, Any]) -> Run:
    job = {
        "workflow": "association_study", "study": section, "participants": {"minimum": 3, "deadline": 120},
    }  # fmt: skip
    return await asyncio.to_thread(deployment.project.run, job)


def answers(deployment: Deployment, site: str) -> int:
    """How many masked arrays have left a site."""
    log = deployment.home(site) / "outbox.jsonl"
    return log.read_text().count('"what":"masked-update"') if log.exists() else 0  # it joins while others do


async def has_answered(deployment: Deployment, run: Run, site: str, times: int) -> None:
    async with asyncio.timeout(120):
        while answers(deployment, site) < times:
            assert (await asyncio.to_thread(run.refresh)).state != "failed", run.view.reason
            await asyncio.sleep(0.01)


async def test_sites_and_workers_killed_in_the_middle_change_no_bit(
    deployment: Deployment, simulated: Simulated, tmp_path: Path
) -> None:
    expected = await asyncio.to_thread(rehearsed, simulated, tmp_path / "rehearsal")
    pids = deployment.hub.supervisor.pids()
    run = await submitted(deployment, SECTION)
    await has_answered(deployment, run, "north", 4)
    os.kill(pids["datapod-north"], signal.SIGKILL)
    workers = psutil.Process(pids["datapod-east"]).children()
    assert workers
    for worker in workers:
        worker.kill()
    await asyncio.to_thread(run.wait)
    assert run.state == "completed", f"{run.state}: {run.view.reason}"
    path = await asyncio.to_thread(run.download, "results", tmp_path / "results")
    found = read_tensors(path)[1]
    for column, values in expected.results.items():
        assert np.array_equal(found[column].view(np.uint8), np.ascontiguousarray(values).view(np.uint8)), column
    assert deployment.hub.supervisor.pids()["datapod-north"] != pids["datapod-north"]
    for site in simulated.cohorts:
        assert verify_log(deployment.home(site)).broken is None
        async with asyncio.timeout(60):
            while list((deployment.home(site) / "studies").glob("*")):  # noqa: ASYNC110 - another process has no event
                await asyncio.sleep(0.02)


async def test_a_wrong_line_of_one_sites_file_ends_the_study_in_its_words(
    deployment: Deployment, simulated: Simulated
) -> None:
    spoil(beside(simulated.cohorts["east"], ".cov"), 5)
    run = await submitted(deployment, WRONG)
    await asyncio.to_thread(run.wait)
    assert run.state == "failed"
    assert "east" in run.view.reason
    assert "east.cov, line 5: AGE: expected a number" in run.view.reason


def spoil(path: Path, number: int) -> None:
    """Put a word where a number was."""
    lines = path.read_text().splitlines()
    words = lines[number - 1].split()
    lines[number - 1] = "\t".join([*words[:-1], "soon"])
    path.write_text("\n".join(lines) + "\n")
