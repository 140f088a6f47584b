"""The demonstration's plot: a hub, sites with uneven data, one run, and the comparison with alone and pooled."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from hanse.demo.comparison import Comparison, compare
from hanse.demo.folders import own_folder
from hanse.demo.program import output_of
from hanse.embedded.deployment import Deployment, SiteFiles
from hanse.hub import Project, Run
from hanse_fabric.errors import ErrorCode, HanseError

PROJECT = "digits"
SITES = ("bremen", "hamburg", "luebeck", "rostock", "stralsund", "wismar", "danzig", "riga")

SCHEMA: dict[str, Any] = {
    "kind": "array",
    "shape": [64],
    "task": "classification",
    "classes": 10,
    "minimum": 0,
    "maximum": 1,
}


def job(rounds: int, seed: int, sites: int) -> dict[str, Any]:
    """The demonstration's job file."""
    return {
        "rounds": rounds,
        "participants": {"minimum": sites, "deadline": 120},
        "model": {"name": "mlp", "hidden": [64]},
        "train": {"epochs": 2, "batch_size": 32, "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9}},
        "strategy": {"reduction": {"name": "weighted_mean"}},
        "seed": seed,
    }


@dataclass(frozen=True)
class DemoOutcome:
    """What the demonstration found. Accuracies are shares of 1."""

    comparison: Comparison
    model_digest: str
    seconds_to_first_round: float
    seconds_total: float
    rounds: int
    folder: Path
    examples: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "federated_accuracy": self.comparison.federated,
            "federated_accuracy_min_site": self.comparison.federated_min_site,
            "local_accuracy_mean": self.comparison.local_mean,
            "pooled_accuracy": self.comparison.pooled,
            "model_digest": self.model_digest,
            "seconds_to_first_round": round(self.seconds_to_first_round, 3),
            "seconds_total": round(self.seconds_total, 3),
            "rounds": self.rounds,
        }


@dataclass(frozen=True)
class Scenario:
    """A demonstration in a folder of its own."""

    folder: Path
    sites: tuple[str, ...]
    rounds: int
    seed: int

    @classmethod
    def create(cls, folder: Path | None, *, sites: int, rounds: int, seed: int) -> Scenario:
        names = SITES[:sites] if sites <= len(SITES) else tuple(f"site-{i + 1:02d}" for i in range(sites))
        return cls(own_folder(folder, "demo"), names, rounds, seed)

    async def play(self, *, quiet: bool) -> DemoOutcome:
        """Run everything; the hub and the sites are stopped when it returns."""
        began = psutil.Process().create_time()
        data = asyncio.create_task(self._make_data())
        files = {
            name: SiteFiles(self.folder / "data" / name / "train.npz", self.folder / "data" / name / "test.npz")
            for name in self.sites
        }
        try:
            # Its run is not masked, so nothing would ask a compensator.
            async with Deployment(self.folder, PROJECT, {}, SCHEMA, compensators=0, nursery=True) as deployment:
                examples = await data
                for name, found in files.items():
                    await deployment.add_site(name, found)
                run, first = await self._train(deployment.project, quiet=quiet, began=began)
                path = self.folder / "model.safetensors"
                await asyncio.to_thread(run.model.download, path)
                digest = run.model.digest
                audit = await asyncio.to_thread(deployment.project.audit)
                (self.folder / "audit.json").write_text(json.dumps(audit, indent=1))
        finally:
            data.cancel()
        if not quiet:
            print("Comparing with each site alone, and with the data pooled ...", flush=True)
        comparison = await compare(self.folder, path, self.sites)
        total = time.time() - began
        return DemoOutcome(comparison, digest, first, total, self.rounds, self.folder, examples)

    async def _train(self, project: Project, *, quiet: bool, began: float) -> tuple[Run, float]:
        body = job(self.rounds, self.seed, len(self.sites))
        (self.folder / "job.json").write_text(json.dumps(body, indent=1))
        run = await asyncio.to_thread(project.run, body)
        first = await asyncio.to_thread(_watch, run, self.rounds, quiet, began)
        if run.state != "completed":
            raise HanseError(
                ErrorCode.INTERNAL,
                f"the demonstration's run ended {run.state}: {run.view.reason}",
                hint=f"the logs are in {self.folder / 'hub' / 'logs'}",
            )
        return run, first

    async def _make_data(self) -> dict[str, int]:
        """Shares of scikit-learn's digits, made by a process of its own: nothing heavy is loaded here."""
        folder, seed = str(self.folder / "data"), str(self.seed)
        output = await output_of("hanse_learning.digits", folder, "--seed", seed, "--sites", *self.sites)
        counts: dict[str, int] = json.loads(output)
        return counts


def _watch(run: Run, rounds: int, quiet: bool, began: float) -> float:
    """Show the run; returns the seconds from the process's start to the first published model."""
    from rich.console import Console

    from hanse.cli.progress import RunDisplay

    first = 0.0
    with RunDisplay(rounds, console=Console(quiet=quiet)) as display:
        for event in run.watch():
            if not first and event.kind == "round-finished":
                first = event.at.timestamp() - began
            display.show(event)
    return first
