"""A study of two cohorts under masks: by consent of both policies, and what each then knows of the other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from e2e.deployed import DeployedHub
from hanse.embedded.deployment import Deployment, SiteFiles
from hanse.hub import Hub, Project, Run
from hanse_fabric.tensors.file import read_tensors
from hanse_genomics.files import open_cohort
from hanse_genomics.rehearsal import rehearse
from hanse_genomics.simulation import CohortPlan, Covariate, StudyPlan, simulate
from hanse_schemas.study import Study

COHORTS = (CohortPlan("north", 60, 70), CohortPlan("south", 50, 40))
PLAN = StudyPlan(snps=300, cohorts=COHORTS, seed=3, covariates=(Covariate("AGE", 60, 10, log_odds=0.3),))
CONSENT = {
    "workflows": ["association_study"], "studies": {"minimum_cohorts": 2}, "masking": {"minimum": 2},
}  # fmt: skip
SECTION = {"test": "logistic", "covariates": ["AGE"], "few_cohorts": True}
COUNTS = {"test": "chi_square", "few_cohorts": True}
SCHEMA = {"kind": "genotypes", "phenotypes": [], "covariates": ["AGE"]}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SiteFiles]:
    made = simulate(PLAN, tmp_path_factory.mktemp("cohorts"))
    return {
        name: SiteFiles(prefix, covariates=prefix.with_name(f"{prefix.name}.cov"))
        for name, prefix in made.cohorts.items()
    }


@pytest.fixture(scope="module")
def expected(files: Mapping[str, SiteFiles], tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    return rehearsed(Study.model_validate(SECTION), files, tmp_path_factory.mktemp("rehearsal"))


def ended(project: Project, mode: str, section: Mapping[str, Any] = SECTION, **masking: Any) -> Run:
    job = {
        "workflow": "association_study", "study": dict(section), "secure_aggregation": {"mode": mode, **masking},
        "participants": {"minimum": 2, "deadline": 60},
    }  # fmt: skip
    run = project.run(job)
    run.wait()
    return run


def results_of(run: Run, folder: Path) -> dict[str, np.ndarray]:
    assert run.state == "completed", run.view.reason
    return read_tensors(run.download("results", folder))[1]


def check_bits(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    for column, values in expected.items():
        assert np.array_equal(found[column].view(np.uint8), np.ascontiguousarray(values).view(np.uint8)), column


def test_two_cohorts_study_under_masks_and_each_can_take_its_own_part_off_the_counts(
    hub: DeployedHub, client: Hub, files: dict[str, SiteFiles], expected: dict[str, np.ndarray], tmp_path: Path
) -> None:
    project = client.projects.create("two-cohorts", schema=SCHEMA)
    for name, one in files.items():
        hub.start_datapod(
            project, name, home=tmp_path / "sites" / name, data=one.train, covariates=one.covariates, rules=CONSENT
        )
    check_bits(results_of(ended(project, "pairwise"), tmp_path / "pairwise"), expected)
    counted = results_of(ended(project, "pairwise", COUNTS), tmp_path / "counts")
    # Of two, each knows the other's: the table less one's own counts.
    alone = Study(test="chi_square", few_cohorts=True, few_samples=True)
    own, other = [rehearsed(alone, {name: files[name]}, tmp_path / name) for name in files]
    left = turned(counted) - turned(own)
    assert np.array_equal(left, turned(other))
    # A compensator sums two only where its operator lets it. (Sites refuse the same study under other masks.)
    run = ended(project, "compensator", SECTION | {"max_iterations": 21})
    assert run.state == "failed"
    assert "fewer than 3 are never summed" in run.view.reason


@pytest.mark.parametrize(("missing", "rule"), [("studies", "studies.minimum_cohorts"), ("masking", "masking.minimum")])
def test_without_the_sites_consent_two_cohorts_are_refused_by_name(
    missing: str, rule: str, hub: DeployedHub, client: Hub, files: dict[str, SiteFiles], tmp_path: Path
) -> None:
    project = client.projects.create(f"without-{missing}", schema=SCHEMA)
    rules = {name: value for name, value in CONSENT.items() if name != missing}
    for name, one in files.items():
        site = f"{name}-{missing}"
        hub.start_datapod(project, site, home=tmp_path / site, data=one.train, covariates=one.covariates, rules=rules)
    run = ended(project, "pairwise")
    assert run.state == "failed"
    assert rule in run.view.reason


async def test_a_compensator_whose_operator_lets_it_sums_two_and_two_of_three_sum_the_same_bits(
    files: dict[str, SiteFiles], expected: dict[str, np.ndarray], tmp_path: Path
) -> None:
    names, settings = ["sharing-1", "sharing-2", "sharing-3"], {"HANSE_COMPENSATOR_MINIMUM": "2"}
    async with Deployment(
        tmp_path, "gwas", files, SCHEMA, policy=CONSENT, settings=settings, nursery=True, sharing=len(names)
    ) as deployment:
        run = await asyncio.to_thread(ended, deployment.project, "compensator", COUNTS)
        assert run.state == "completed", run.view.reason
        run = await asyncio.to_thread(ended, deployment.project, "compensator", compensators=names, needed=2)
        check_bits(await asyncio.to_thread(results_of, run, tmp_path / "shared"), expected)


def rehearsed(study: Study, files: Mapping[str, SiteFiles], folder: Path) -> dict[str, np.ndarray]:
    """What one process makes of the same files."""
    opened = {name: open_cohort(one.train, study, None, one.covariates) for name, one in files.items()}
    with threadpool_limits(1):
        return dict(rehearse(study, opened, folder).results)


def turned(results: Mapping[str, np.ndarray]) -> np.ndarray:
    """Alleles by their names, not by which is rarer: int64 (S, 4), first and second in cases, then in controls."""
    minor = results["minor"][:, None] == 1
    counts = results["counts"]
    return np.where(minor, counts[:, [1, 0, 3, 2]], counts)
