"""`hanse gwas demo`: two data sets in three cohorts each, three tests, federated, pooled and by meta-analysis."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from hanse.demo.folders import own_folder
from hanse.demo.program import output_of
from hanse.embedded.datapods import datapod
from hanse.embedded.deployment import Deployment, SiteFiles
from hanse.hub import Project, Run
from hanse.studies import fetch_study
from hanse_schemas.job import STUDY

if TYPE_CHECKING:
    from hanse.cli.study_progress import StudyDisplay

DATASETS = ("simulated", "hapmap1")
_FORMATTER = "hanse_genomics"


@dataclass(frozen=True)
class GwasOutcome:
    """What the demonstration found.

    Attributes:
        datasets: as `python -m hanse_genomics demo-data` answers.
        compared: by data set and test, as `demo-compare` answers.
        seconds: from a study's beginning to its end, by (data set, test); all of them ran at once.
        sent: bytes, by the same.
    """

    folder: Path
    datasets: list[dict[str, Any]]
    compared: list[dict[str, Any]]
    seconds: dict[tuple[str, str], float]
    sent: dict[tuple[str, str], int]
    seconds_total: float

    def as_json(self) -> dict[str, Any]:
        """One object, for programs."""
        compared = [
            {
                **one, "seconds": round(self.seconds[one["dataset"], one["test"]], 3),
                "bytes": self.sent[one["dataset"], one["test"]],
            }
            for one in self.compared
        ]  # fmt: skip
        return {"studies": compared, "folder": str(self.folder), "seconds_total": round(self.seconds_total, 3)}


@dataclass(frozen=True)
class GwasScenario:
    """A demonstration in a folder of its own."""

    folder: Path
    seed: int
    names: tuple[str, ...]

    @classmethod
    def create(cls, folder: Path | None, *, seed: int, names: tuple[str, ...] = DATASETS) -> GwasScenario:
        return cls(own_folder(folder, "gwas-demo"), seed, names)

    async def play(self, *, quiet: bool) -> GwasOutcome:
        """Run everything; the hub and the sites are stopped when it returns."""
        began = psutil.Process().create_time()
        making = asyncio.create_task(
            output_of(_FORMATTER, "demo-data", str(self.folder / "data"), *self._seed(), "--names", *self.names)
        )
        seconds: dict[tuple[str, str], float] = {}
        sent: dict[tuple[str, str], int] = {}
        try:
            _say(quiet, "Starting a hub, and making two data sets in three cohorts each ...")
            async with Deployment(self.folder, "starting", {}, {"kind": "open"}, policy=_POLICY) as deployment:
                datasets = json.loads(await making)
                runs: dict[tuple[str, str], Run] = {}
                for dataset in datasets:
                    project = await self._open(deployment, dataset)
                    for test, study in dataset["studies"].items():
                        job = {"workflow": STUDY, "study": study, "participants": {"deadline": 120}}
                        # All at once: a site waits more than it computes.
                        runs[dataset["name"], test] = await asyncio.to_thread(project.run, job)
                for key, run in runs.items():
                    shown = await asyncio.to_thread(self._watch, run, key, quiet)
                    seconds[key], sent[key] = shown.seconds, shown.traffic.total
                    folder = self.folder / "results" / key[0] / key[1]
                    await asyncio.to_thread(fetch_study, run, folder, shown.traffic)
        finally:
            making.cancel()
        _say(quiet, "Writing tables and reports ...")
        folders = [self.folder / "results" / dataset / test for dataset, test in seconds]
        await output_of(_FORMATTER, "publish", *map(str, folders))
        _say(quiet, "Comparing with the pooled data, and with meta-analysis ...")
        listing = self.folder / "datasets.json"
        listing.write_text(json.dumps(datasets, indent=1), encoding="utf-8")
        compared = json.loads(await output_of(_FORMATTER, "demo-compare", str(listing), str(self.folder / "results")))
        return GwasOutcome(self.folder, datasets, compared, seconds, sent, time.time() - began)

    def _seed(self) -> tuple[str, str]:
        return "--seed", str(self.seed)

    async def _open(self, deployment: Deployment, dataset: dict[str, Any]) -> Project:
        """A project for a data set, and a datapod for each of its cohorts."""
        name = dataset["name"]
        project = await asyncio.to_thread(deployment.client.projects.create, name, schema=dataset["schema"])
        for cohort, prefix in dataset["cohorts"].items():
            token = await asyncio.to_thread(project.invite, cohort)
            files = SiteFiles(Path(prefix), phenotypes=Path(f"{prefix}.pheno"), covariates=Path(f"{prefix}.cov"))
            spec = datapod(
                _site(name, cohort), home=self.folder / "sites" / name / cohort, url=deployment.hub.url, token=token,
                data=files.train, policy=deployment.policy_file(), phenotypes=files.phenotypes,
                covariates=files.covariates,
            )  # fmt: skip
            deployment.datapods[_site(name, cohort)] = deployment.hub.supervisor.start(spec)
        return project

    def _watch(self, run: Run, key: tuple[str, str], quiet: bool) -> StudyDisplay:
        """Show a study until it has ended."""
        from rich.console import Console

        from hanse.cli.study_progress import StudyDisplay

        dataset, test = key
        _say(quiet, f"{dataset}: {test.replace('_', '-')} over three cohorts ...")
        console = Console()
        console.quiet = quiet or not console.is_terminal  # a line for each is enough where nothing moves
        with StudyDisplay(console=console) as display:
            for event in run.watch():
                display.show(event)
        return display


_POLICY: dict[str, Any] = {"workflows": [STUDY]}


def _site(dataset: str, cohort: str) -> str:
    return f"{dataset}-{cohort}"


def _say(quiet: bool, text: str) -> None:
    if not quiet:
        print(text, flush=True)
