"""All that was said on the bus in real studies, searched for what a site must not say: its sums, and its files."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from threadpoolctl import threadpool_limits

from e2e.test_role_views import Seen, tapped
from hanse.embedded.deployment import Deployment, SiteFiles
from hanse_genomics.arrays import Arrays
from hanse_genomics.files import open_cohort
from hanse_genomics.rehearsal import RehearsalVerbs
from hanse_genomics.simulation import CohortPlan, Covariate, Simulated, StudyPlan, simulate
from hanse_genomics.study import conduct
from hanse_privacy.joint import Computation
from hanse_privacy.ring.codec import encode
from hanse_schemas.study import Study

# That a site accepts mode ring is what the control needs; the other modes are masked all the same.
POLICY = {"workflows": ["association_study"], "studies": {"masked": False}}
STUDIES: dict[str, dict[str, Any]] = {
    "chi_square": {"test": "chi_square", "chunk": 256},
    "linear": {
        "test": "linear", "phenotype": "TRAIT", "covariates": ["AGE"],
        "structure": {"components": 1, "max_iterations": 2},
    },
    "logistic": {"test": "logistic", "covariates": ["AGE"]},
}  # fmt: skip
NEEDLE = 96
"""Bytes of a secret that are looked for; of shorter ones all."""

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    cohorts = (CohortPlan("north", 60, 70), CohortPlan("east", 50, 60), CohortPlan("south", 50, 55))
    plan = StudyPlan(snps=400, cohorts=cohorts, seed=5, missing=0.01, covariates=(Covariate("AGE", 60, 10, trait=0.2),))
    return simulate(plan, tmp_path_factory.mktemp("cohorts"), pooled_files=False)


def beside(prefix: Path, ending: str) -> Path:
    return prefix.with_name(prefix.name + ending)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def deployment(simulated: Simulated, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployment]:
    files = {
        name: SiteFiles(prefix, phenotypes=beside(prefix, ".pheno"), covariates=beside(prefix, ".cov"))
        for name, prefix in simulated.cohorts.items()
    }
    schema = {"kind": "genotypes", "phenotypes": ["TRAIT"], "covariates": ["AGE"]}
    folder = tmp_path_factory.mktemp("sites")
    async with Deployment(folder, "gwas", files, schema, policy=POLICY, nursery=True) as started:
        yield started


class Remembering(RehearsalVerbs):
    """Keeps what each site computes, in its own numbers and as the ring has them."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.secrets: dict[str, bytes] = {}

    def _answer(self, name: str, asked: Computation) -> Arrays:
        arrays = super()._answer(name, asked)
        for key, array in arrays.items() if asked.rings is not None else ():
            own = f"{key} of {name} in {asked.key}"
            self.secrets[own] = np.ascontiguousarray(array).tobytes()
            self.secrets[f"{own}, ring"] = encode(array, (asked.rings or {})[key], refuse=True)[0].tobytes()
        return arrays


def secrets_of(simulated: Simulated, section: Mapping[str, Any], folder: Path) -> dict[str, bytes]:
    """Every masked array of every site, and rows of its files."""
    study = Study.model_validate(section)
    cohorts = {
        name: open_cohort(prefix, study, beside(prefix, ".pheno"), beside(prefix, ".cov"))
        for name, prefix in simulated.cohorts.items()
    }
    verbs = Remembering(cohorts, study, folder)
    with threadpool_limits(1):
        asyncio.run(conduct(verbs, study))
    found = dict(verbs.secrets)
    for name, cohort in cohorts.items():
        found |= {f"genotypes {row} of {name}": cohort.packed(slice(row, row + 1)).tobytes() for row in range(5)}
        found |= {f"samples of {name}": " ".join(cohort.ids[3]).encode()}
    # Arrays that are nearly empty would be found everywhere.
    return {name: data for name, data in found.items() if len(set(data[:NEEDLE])) > 7}


def forms(data: bytes) -> Iterator[bytes]:
    """How a message could carry it."""
    yield data
    yield data.hex().encode()
    for shift in range(3):
        # Whole groups of three bytes, which do not depend on what follows; and no fewer than two groups, for four
        # letters are found by chance in some megabytes.
        groups = (len(data) - shift) // 3
        yield base64.b64encode(data[shift : shift + 3 * groups])


async def said(deployment: Deployment, section: Mapping[str, Any], mode: str) -> Seen:
    """All that is said while a study is made."""
    seen = Seen()
    job = {
        "workflow": "association_study", "study": section, "secure_aggregation": {"mode": mode},
        "participants": {"minimum": 3, "deadline": 60},
    }  # fmt: skip
    async with tapped(deployment.folder, seen):
        run = await asyncio.to_thread(deployment.project.run, job)
        await asyncio.to_thread(run.wait)
    assert run.state == "completed", f"{run.state}: {run.view.reason}"
    return seen


def told(seen: Seen, secrets: Mapping[str, bytes]) -> set[str]:
    """The secrets that stand in any message."""
    everything = b"\0".join(data for _, data in seen.messages)
    return {name for name, data in secrets.items() if any(form in everything for form in forms(data[:NEEDLE]))}


@pytest.mark.parametrize(
    ("name", "mode"), [("chi_square", "compensator"), ("linear", "compensator"), ("logistic", "pairwise")]
)
async def test_no_message_of_a_masked_study_holds_anything_that_a_site_computed(
    deployment: Deployment, simulated: Simulated, name: str, mode: str, tmp_path: Path
) -> None:
    secrets = await asyncio.to_thread(secrets_of, simulated, STUDIES[name], tmp_path)
    seen = await said(deployment, STUDIES[name], mode)
    assert sum(map(len, seen.updates().values())) > 6  # the files were on the bus, not in the store
    assert told(seen, secrets) == set()


async def test_the_search_finds_every_sum_of_a_study_without_masks(
    deployment: Deployment, simulated: Simulated, tmp_path: Path
) -> None:
    secrets = await asyncio.to_thread(secrets_of, simulated, STUDIES["linear"], tmp_path)
    found = told(await said(deployment, STUDIES["linear"], "ring"), secrets)
    expected = {"sums of {} in totals", "products of {} in moments", "counts of {} in c00000-linear, ring"}
    expected |= {"sums of {} in c00000-linear, ring", "image of {} in structure-round-0001, ring"}
    assert found >= {one.format(name) for one in expected for name in simulated.cohorts}
    assert not any(name.startswith(("genotypes", "samples of")) for name in found)
