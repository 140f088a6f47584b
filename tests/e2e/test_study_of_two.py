"""A study of two cohorts under masks: by consent of both policies, and what each then knows of the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from hanse.embedded.deployment import Deployment, SiteFiles
from hanse.hub import Run
from hanse_fabric.tensors.file import read_tensors
from hanse_genomics.files import open_cohort
from hanse_genomics.rehearsal import rehearse
from hanse_genomics.simulation import CohortPlan, Covariate, Plan, simulate
from hanse_schemas.study import Study

COHORTS = (CohortPlan("north", 60, 70), CohortPlan("south", 50, 40))
PLAN = Plan(snps=300, cohorts=COHORTS, seed=3, covariates=(Covariate("AGE", 60, 10, log_odds=0.3),))
CONSENT = {
    "workflows": ["association_study"], "studies": {"minimum_cohorts": 2}, "masking": {"minimum": 2},
}  # fmt: skip
SECTION = {"test": "logistic", "covariates": ["AGE"], "few_cohorts": True}

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(300)]


def files_of(folder: Path) -> dict[str, SiteFiles]:
    made = simulate(PLAN, folder / "cohorts")
    return {
        name: SiteFiles(prefix, covariates=prefix.with_name(f"{prefix.name}.cov"))
        for name, prefix in made.cohorts.items()
    }


@asynccontextmanager
async def placed(
    folder: Path, files: Mapping[str, SiteFiles], policy: Mapping[str, Any], settings: Mapping[str, str] | None = None,
    sharing: int = 0,
) -> AsyncIterator[Deployment]:  # fmt: skip
    schema = {"kind": "genotypes", "phenotypes": [], "covariates": ["AGE"]}
    async with Deployment(
        folder, "gwas", dict(files), schema, policy=policy, settings=settings, nursery=True, sharing=sharing
    ) as deployment:
        yield deployment


async def ended(deployment: Deployment, section: Mapping[str, Any], mode: str, **masking: Any) -> Run:
    job = {
        "workflow": "association_study", "study": dict(section), "secure_aggregation": {"mode": mode, **masking},
        "participants": {"minimum": 2, "deadline": 60},
    }  # fmt: skip
    run = await asyncio.to_thread(deployment.project.run, job)
    await asyncio.to_thread(run.wait)
    return run


async def results_of(run: Run, folder: Path) -> dict[str, np.ndarray]:
    assert run.state == "completed", run.view.reason
    path = await asyncio.to_thread(run.download, "results", folder)
    return read_tensors(path)[1]


async def test_two_cohorts_study_under_masks_and_each_can_take_its_own_part_off_the_counts(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    expected = await asyncio.to_thread(rehearsed, Study.model_validate(SECTION), files, tmp_path / "rehearsal")
    async with placed(tmp_path / "deployed", files, CONSENT) as deployment:
        found = await results_of(await ended(deployment, SECTION, "pairwise"), tmp_path / "pairwise")
        for column, values in expected.items():
            assert np.array_equal(found[column].view(np.uint8), np.ascontiguousarray(values).view(np.uint8)), column
        counted = await results_of(
            await ended(deployment, {"test": "chi_square", "few_cohorts": True}, "pairwise"), tmp_path / "counts"
        )
    # Of two, each knows the other's: the table less one's own counts.
    alone = Study(test="chi_square", few_cohorts=True, few_samples=True)
    own, other = [await asyncio.to_thread(rehearsed, alone, {name: files[name]}, tmp_path / name) for name in files]
    left = turned(counted) - turned(own)
    assert np.array_equal(left, turned(other))


async def test_a_compensator_sums_two_where_its_operator_lets_it_and_else_refuses(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    async with placed(tmp_path / "by default", files, CONSENT) as deployment:
        run = await ended(deployment, SECTION, "compensator")
    assert run.state == "failed"
    assert "fewer than 3 are never summed" in run.view.reason
    async with placed(tmp_path / "set", files, CONSENT, {"HANSE_COMPENSATOR_MINIMUM": "2"}) as deployment:
        run = await ended(deployment, SECTION, "compensator")
    assert run.state == "completed", run.view.reason


async def test_two_of_three_compensators_sum_a_study_to_the_same_bits(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    expected = await asyncio.to_thread(rehearsed, Study.model_validate(SECTION), files, tmp_path / "rehearsal")
    names = ["sharing-1", "sharing-2", "sharing-3"]
    async with placed(tmp_path / "set", files, CONSENT, {"HANSE_COMPENSATOR_MINIMUM": "2"}, len(names)) as deployment:
        run = await ended(deployment, SECTION, "compensator", compensators=names, needed=2)
        found = await results_of(run, tmp_path / "shared")
    for column, values in expected.items():
        assert np.array_equal(found[column].view(np.uint8), np.ascontiguousarray(values).view(np.uint8)), column


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


@pytest.mark.parametrize(("missing", "rule"), [("studies", "studies.minimum_cohorts"), ("masking", "masking.minimum")])
async def test_without_the_sites_consent_two_cohorts_are_refused_by_name(
    missing: str, rule: str, tmp_path: Path
) -> None:
    policy = {name: value for name, value in CONSENT.items() if name != missing}
    async with placed(tmp_path / "deployed", files_of(tmp_path), policy) as deployment:
        run = await ended(deployment, SECTION, "pairwise")
    assert run.state == "failed"
    assert rule in run.view.reason
