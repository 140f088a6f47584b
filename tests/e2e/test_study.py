"""Association studies by real processes: the bits of a rehearsal in one process, in every mode, and outputs to keep."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from hanse.embedded.deployment import Deployment, SiteFiles
from hanse.hub import Run
from hanse_fabric.study import Study
from hanse_fabric.tensors.file import read_tensors
from hanse_genomics.files import open_cohort
from hanse_genomics.rehearsal import Rehearsed, rehearse
from hanse_genomics.simulation import CohortPlan, Covariate, Plan, Simulated, simulate

PLAN = Plan(
    snps=700,
    cohorts=(CohortPlan("north", 60, 70), CohortPlan("east", 40, 60), CohortPlan("south", 50, 40)),
    seed=7,
    missing=0.01,
    swapped=0.2,
    covariates=(Covariate("AGE", 60, 10, log_odds=0.3, trait=0.2),),
)
POLICY = {"workflows": ["association_study"]}
STUDIES: dict[str, dict[str, Any]] = {
    "chi_square": {"test": "chi_square", "chunk": 256},
    "trend": {"test": "trend", "chunk": 256},
    "linear": {"test": "linear", "phenotype": "TRAIT", "covariates": ["AGE"], "sex": True, "chunk": 256},
    "logistic": {"test": "logistic", "covariates": ["AGE"], "chunk": 512, "in_flight": 2},
    # Three rounds are enough to show that vectors travel; nothing converges in them, which the summary must say.
    "structure": {
        "test": "linear", "phenotype": "TRAIT", "chunk": 256,
        "structure": {"components": 2, "oversampling": 6, "max_iterations": 3, "r2": 0.5},
    },
}  # fmt: skip

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    return simulate(PLAN, tmp_path_factory.mktemp("cohorts"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def deployment(simulated: Simulated, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployment]:
    files = {name: site_files(prefix) for name, prefix in simulated.cohorts.items()}
    schema = {"kind": "genotypes", "phenotypes": ["TRAIT"], "covariates": ["AGE"]}
    async with Deployment(tmp_path_factory.mktemp("studies"), "gwas", files, schema, policy=POLICY) as started:
        yield started


def site_files(prefix: Path) -> SiteFiles:
    return SiteFiles(prefix, phenotypes=beside(prefix, ".pheno"), covariates=beside(prefix, ".cov"))


def beside(prefix: Path, ending: str) -> Path:
    return prefix.with_name(prefix.name + ending)


def rehearsed(simulated: Simulated, section: dict[str, Any], folder: Path) -> Rehearsed:
    study = Study.model_validate(section)
    cohorts = {
        name: open_cohort(prefix, study, beside(prefix, ".pheno"), beside(prefix, ".cov"))
        for name, prefix in simulated.cohorts.items()
    }
    return rehearse(study, cohorts, folder)


async def done(deployment: Deployment, section: dict[str, Any], mode: str) -> Run:
    """The run of a study when it has ended; fails where the run did."""
    job = {
        "workflow": "association_study", "study": section, "secure_aggregation": {"mode": mode},
        "participants": {"minimum": 3, "deadline": 60},
    }  # fmt: skip
    run = await asyncio.to_thread(deployment.project.run, job)
    await asyncio.to_thread(run.wait)
    assert run.state == "completed", f"{run.state}: {run.view.reason}"
    return run


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("chi_square", "compensator"),
        ("trend", "pairwise"),
        ("linear", "compensator"),
        ("logistic", "pairwise"),
        ("structure", "compensator"),
    ],
)
async def test_a_study_on_the_platform_has_the_bits_of_its_rehearsal(
    deployment: Deployment, simulated: Simulated, name: str, mode: str, tmp_path: Path
) -> None:
    expected = await asyncio.to_thread(rehearsed, simulated, STUDIES[name], tmp_path / "rehearsal")
    run = await done(deployment, STUDIES[name], mode)
    assert [output.name for output in await asyncio.to_thread(lambda: run.outputs)] == ["results", "summary"]
    path = await asyncio.to_thread(run.download, "results", tmp_path / "results")
    found = read_tensors(path)[1]
    assert found.keys() == expected.results.keys()
    for column, values in expected.results.items():
        assert np.array_equal(found[column].view(np.uint8), np.ascontiguousarray(values).view(np.uint8)), column
    summary = read_tensors(await asyncio.to_thread(run.download, "summary", tmp_path / "summary"))[1]
    assert json.loads(summary["json"].tobytes()) == expected.summary
