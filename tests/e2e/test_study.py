"""Association studies by real processes: the bits of a rehearsal in one process, in every mode, also when sites are
killed in the middle; all that is said on the bus meanwhile, searched for what a site must not say: its sums, and its
files; outputs to keep, and a site whose files are wrong.

The same on the real data of HapMap, beside the pooled analysis, is in test_gwas_demo.py.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import pytest_asyncio
from threadpoolctl import threadpool_limits

from e2e.test_role_views import Seen, tapped
from forked_commands import Commands
from hanse.embedded.deployment import Deployment, SiteFiles
from hanse.hub import Run
from hanse.site_results import save_results_at_site
from hanse.verification import verify_output
from hanse_datapod.home.outbox import verify_log
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import StudyOutput
from hanse_fabric.tensors.file import read_tensors
from hanse_genomics.arrays import Arrays
from hanse_genomics.files import open_cohort
from hanse_genomics.rehearsal import RehearsalVerbs
from hanse_genomics.simulation import CohortPlan, Covariate, StudyPlan, simulate
from hanse_genomics.study import conduct
from hanse_privacy.joint import Computation
from hanse_privacy.ring.codec import encode
from hanse_schemas.study import Study
from hanse_site import enrol

PLAN = StudyPlan(
    snps=640,
    cohorts=(CohortPlan("north", 60, 70), CohortPlan("east", 40, 60), CohortPlan("south", 50, 40)),
    seed=7,
    missing=0.01,
    swapped=0.2,
    covariates=(Covariate("AGE", 60, 10, log_odds=0.3, trait=0.2),),
)
# That a site accepts mode ring is what the control needs; the other modes are masked all the same.
POLICY = {"workflows": ["association_study"], "studies": {"masked": False}}
SIMULATED: dict[str, dict[str, Any]] = {
    "chi_square": {"test": "chi_square", "chunk": 256},
    "trend": {"test": "trend", "chunk": 160},
    "logistic": {"test": "logistic", "covariates": ["AGE"], "chunk": 320, "in_flight": 2},
    "firth": {"test": "logistic", "covariates": ["AGE"], "firth": "always", "chunk": 640},
    "components": {
        "test": "linear", "phenotype": "TRAIT", "covariates": ["AGE"], "sex": True, "chunk": 320,
        "structure": {"components": 2, "max_iterations": 4},
    },
}  # fmt: skip
NEEDLE = 96
"""Bytes of a secret that are looked for; of shorter ones all."""

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@dataclass(frozen=True)
class Expected:
    """What a study makes in one process.

    Attributes:
        secrets: every masked array of every site, and rows of its files.
    """

    results: Mapping[str, np.ndarray]
    summary: dict[str, Any]
    secrets: dict[str, bytes]


@dataclass(frozen=True)
class Place:
    """A deployment, and the files of its sites."""

    deployment: Deployment
    files: dict[str, SiteFiles]

    def rehearsed(self, section: dict[str, Any], folder: Path) -> Expected:
        """What one process makes of the same files."""
        study = Study.model_validate(section)
        cohorts = {
            name: open_cohort(files.train, study, files.phenotypes, files.covariates)
            for name, files in self.files.items()
        }
        verbs = Remembering(cohorts, study, folder)
        # Sites compute with one thread, on which the last bit of large products depends.
        with threadpool_limits(1):
            made = asyncio.run(conduct(verbs, study))
        found = dict(verbs.secrets)
        for name, cohort in cohorts.items():
            found |= {f"genotypes {row} of {name}": cohort.packed(slice(row, row + 1)).tobytes() for row in range(5)}
            found |= {f"samples of {name}": " ".join(cohort.ids[3]).encode()}
        # Arrays that are nearly empty would be found everywhere.
        secrets = {name: data for name, data in found.items() if len(set(data[:NEEDLE])) > 7}
        return Expected(made["results"], json.loads(made["summary"]["json"].tobytes()), secrets)


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


def forms(data: bytes) -> Iterator[bytes]:
    """How a message could carry it."""
    yield data
    yield data.hex().encode()
    for shift in range(3):
        # Whole groups of three bytes, which do not depend on what follows; and no fewer than two groups, for four
        # letters are found by chance in some megabytes.
        groups = (len(data) - shift) // 3
        yield base64.b64encode(data[shift : shift + 3 * groups])


def in_messages(seen: Seen, secrets: Mapping[str, bytes]) -> set[str]:
    """The secrets that stand in any message."""
    everything = b"\0".join(data for _, data in seen.messages)
    return {name for name, data in secrets.items() if any(form in everything for form in forms(data[:NEEDLE]))}


@asynccontextmanager
async def placed(folder: Path, prefixes: dict[str, Path], schema: dict[str, Any]) -> AsyncIterator[Place]:
    files = {
        name: SiteFiles(
            prefix, phenotypes=prefix.with_name(f"{prefix.name}.pheno"),
            covariates=prefix.with_name(f"{prefix.name}.cov"),
        )
        for name, prefix in prefixes.items()
    }  # fmt: skip
    whole = {"kind": "genotypes", **schema}
    async with Deployment(folder, "gwas", files, whole, policy=POLICY, nursery=True) as deployment:
        yield Place(deployment, files)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def simulated(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    folder = tmp_path_factory.mktemp("simulated")
    made = simulate(PLAN, folder / "cohorts")
    schema = {"phenotypes": ["TRAIT"], "covariates": ["AGE"]}
    async with placed(folder, dict(made.cohorts), schema) as place:
        yield place


async def undisturbed(_run: Run) -> None:
    pass


async def done(
    deployment: Deployment, section: dict[str, Any], mode: str, disturb: Callable[[Run], Awaitable[None]] = undisturbed
) -> Run:
    """The run of a study when it has ended; fails where the run did."""
    job = {
        "workflow": "association_study", "study": section, "secure_aggregation": {"mode": mode},
        "participants": {"minimum": 3, "deadline": 60},
    }  # fmt: skip
    run = await asyncio.to_thread(deployment.project.run, job)
    await disturb(run)
    await asyncio.to_thread(run.wait)
    assert run.state == "completed", f"{run.state}: {run.view.reason}"
    return run


async def check_bits(
    place: Place, section: dict[str, Any], mode: str, folder: Path,
    disturb: Callable[[Run], Awaitable[None]] = undisturbed,
) -> Expected:  # fmt: skip
    expected = await asyncio.to_thread(place.rehearsed, section, folder / "rehearsal")
    run = await done(place.deployment, section, mode, disturb)
    assert [output.name for output in await asyncio.to_thread(lambda: run.outputs)] == ["results", "summary"]
    path = await asyncio.to_thread(run.download, "results", folder / "results")
    found = read_tensors(path)[1]
    assert found.keys() == expected.results.keys()
    for column, values in expected.results.items():
        assert np.array_equal(found[column].view(np.uint8), np.ascontiguousarray(values).view(np.uint8)), column
    summary = read_tensors(await asyncio.to_thread(run.download, "summary", folder / "summary"))[1]
    assert json.loads(summary["json"].tobytes()) == expected.summary
    return expected


@pytest.mark.parametrize(
    ("name", "mode"),
    [("chi_square", "compensator"), ("logistic", "pairwise"), ("firth", "compensator"), ("components", "compensator")],
)
async def test_a_study_on_the_platform_has_the_bits_of_its_rehearsal(
    simulated: Place, name: str, mode: str, tmp_path: Path
) -> None:
    """And no message of it holds anything that a site computed."""
    seen = Seen()
    async with tapped(simulated.deployment.folder, seen):
        expected = await check_bits(simulated, SIMULATED[name], mode, tmp_path)
    assert sum(map(len, seen.updates().values())) > 6  # the files were on the bus, not in the store
    assert in_messages(seen, expected.secrets) == set()


async def test_the_search_finds_every_sum_of_a_study_without_masks(simulated: Place, tmp_path: Path) -> None:
    section, seen = SIMULATED["components"] | {"structure": {"components": 1, "max_iterations": 2}}, Seen()
    async with tapped(simulated.deployment.folder, seen):
        secrets = (await check_bits(simulated, section, "ring", tmp_path)).secrets
    found = in_messages(seen, secrets)
    expected = {"sums of {} in totals", "products of {} in moments", "counts of {} in c00000-linear, ring"}
    expected |= {"sums of {} in c00000-linear, ring", "image of {} in structure-round-0001, ring"}
    assert found >= {one.format(name) for one in expected for name in simulated.files}
    assert not any(name.startswith(("genotypes", "samples of")) for name in found)


def answers(deployment: Deployment, site: str) -> int:
    """How many masked arrays have left a site."""
    log = deployment.home(site) / "outbox.jsonl"
    return log.read_text().count('"what":"masked-update"') if log.exists() else 0  # it joins while others do


async def has_answered(deployment: Deployment, run: Run, site: str, times: int) -> None:
    async with asyncio.timeout(120):
        while answers(deployment, site) < times:
            assert (await asyncio.to_thread(run.refresh)).state != "failed", run.view.reason
            await asyncio.sleep(0.01)


async def test_sites_and_workers_killed_in_the_middle_change_no_bit(simulated: Place, tmp_path: Path) -> None:
    """Of four chunks, each asked for when the one before is there, the first is there."""
    section = SIMULATED["trend"] | {"in_flight": 1}
    deployment = simulated.deployment
    pids, before = dict[str, int](), answers(deployment, "north")

    async def disturb(run: Run) -> None:
        await has_answered(deployment, run, "north", before + 1)
        pids.update(deployment.hub.supervisor.pids())
        os.kill(pids["datapod-north"], signal.SIGKILL)
        workers = psutil.Process(pids["datapod-east"]).children()
        assert workers
        for worker in workers:
            worker.kill()

    await check_bits(simulated, section, "compensator", tmp_path, disturb)
    assert deployment.hub.supervisor.pids()["datapod-north"] != pids["datapod-north"]
    for site in simulated.files:
        assert verify_log(deployment.home(site)).broken is None
        async with asyncio.timeout(60):
            while list((deployment.home(site) / "studies").glob("*")):  # noqa: ASYNC110 - another process has no event
                await asyncio.sleep(0.02)


async def test_cohorts_fetch_what_their_study_has_made_and_a_site_that_came_later_does_not(
    simulated: Place, commands: Commands, tmp_path: Path
) -> None:
    deployment = simulated.deployment
    made = await asyncio.to_thread(deployment.project.runs)
    studies = [run for run in made if run.state == "completed"]  # by the tests before
    run = studies[0] if studies else await done(deployment, SIMULATED["trend"], "compensator")
    digests = {output.name: output.digest for output in await asyncio.to_thread(lambda: run.outputs)}
    await enrol(deployment.hub.url, await asyncio.to_thread(deployment.project.invite, "late"), tmp_path / "late")

    def fetched(home: Path, folder: str) -> subprocess.CompletedProcess[str]:
        words = ["hanse", "site", "results", run.id, folder, "--home", str(home), "--json"]
        return commands.run(words, cwd=tmp_path)

    told = await asyncio.to_thread(fetched, deployment.home("east"), "home/trend")
    body = json.loads(told.stdout)
    assert body["digests"] == digests, told.stderr
    assert body["snps"] > 600
    assert {"results.tsv.gz", "report.html"} <= {path.name for path in (tmp_path / "home" / "trend").iterdir()}
    assert body["pinned_now"], "the registry's key, at the first results"
    record = StudyOutput.decode((tmp_path / "home" / "trend" / "results.safetensors.json").read_bytes())
    key = base64.b64decode(body["signed_by"])
    verify_output(tmp_path / "home" / "trend" / "results.safetensors", record, trusted_key=key)
    assert record.cohorts == ("east", "north", "south")
    again = await asyncio.to_thread(save_results_at_site, deployment.home("east"), run.id, tmp_path / "again")
    assert (again["signed_by"], again["pinned_now"]) == (body["signed_by"], False)
    other = bytes(31) + b"\x01"
    for home, key, words in (
        (deployment.home("north"), other, "recorded under another key than the trusted one"),
        (tmp_path / "nobody", None, "holds no identity"),
    ):
        with pytest.raises(HanseError, match=words):
            await asyncio.to_thread(save_results_at_site, home, run.id, tmp_path / "none", trusted_key=key)
    refused = await asyncio.to_thread(fetched, tmp_path / "late", "stolen")
    assert refused.returncode == 3, refused.stderr
    assert "late took no part in it" in refused.stderr
    assert not (tmp_path / "stolen").exists()


async def test_a_wrong_line_of_one_sites_file_ends_the_study_in_its_words(simulated: Place) -> None:
    """The last test of this deployment, at one of whose sites a word stands where a number was."""
    covariates = simulated.files["east"].covariates
    assert covariates is not None
    spoil(covariates, 5)
    job = {"workflow": "association_study", "study": SIMULATED["logistic"], "participants": {"minimum": 3}}
    run = await asyncio.to_thread(simulated.deployment.project.run, job)
    await asyncio.to_thread(run.wait)
    assert run.state == "failed"
    assert "east" in run.view.reason
    assert f"{covariates.name}, line 5: AGE: expected a number" in run.view.reason


def spoil(path: Path, number: int) -> None:
    """Put a word where a number was."""
    lines = path.read_text().splitlines()
    words = lines[number - 1].split()
    lines[number - 1] = "\t".join([*words[:-1], "soon"])
    path.write_text("\n".join(lines) + "\n")
