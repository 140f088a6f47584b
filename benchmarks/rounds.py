"""Time per round of deployed processes, and what the hub's services take of memory while they do it."""

from __future__ import annotations

import asyncio
import itertools
import statistics
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from hanse.embedded.deployment import Deployment, SiteFiles
from hanse.hub import Run

CLASSES = 10
FEATURES = 64
SCHEMA = {"kind": "array", "shape": [FEATURES], "task": "classification", "classes": CLASSES}
SERVICES = ("coordinator", "aggregator", "model-registry", "compensator")


@dataclass(frozen=True)
class RoundTimes:
    """Seconds from the end of one round to the end of the next; the first round is left out."""

    seconds: Sequence[float]

    @property
    def p50(self) -> float:
        return statistics.median(self.seconds)

    @property
    def p99(self) -> float:
        return float(np.quantile(self.seconds, 0.99))


def write_site(folder: Path, *, examples: int = 64, seed: int = 0) -> SiteFiles:
    """A small site's data: random, for only time and memory are measured."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    x = generator.random((examples, FEATURES), dtype=np.float32)
    y = generator.integers(0, CLASSES, examples)
    np.savez(folder / "train.npz", x=x, y=y)
    np.savez(folder / "test.npz", x=x[:16], y=y[:16])
    return SiteFiles(folder / "train.npz", folder / "test.npz")


def tiny_job(rounds: int, participants: int) -> dict[str, Any]:
    """650 parameters; what is measured is everything but the training."""
    return {
        "rounds": rounds,
        "participants": {"minimum": participants, "deadline": 120, "patience": 600},
        "model": {"name": "logistic"},
        "train": {"epochs": 1, "batch_size": 64, "optimizer": {"name": "sgd", "lr": 0.1}},
    }


def sized_job(rounds: int, participants: int, megabytes: int) -> dict[str, Any]:
    """An MLP of so many MB in float32: one step on one small batch, and no evaluation."""
    parameters = megabytes * 1_000_000 // 4
    width = int((-(FEATURES + CLASSES + 2) + ((FEATURES + CLASSES + 2) ** 2 + 4 * parameters) ** 0.5) / 2)
    return {
        "rounds": rounds,
        "participants": {"minimum": participants, "deadline": 600, "patience": 600},
        "model": {"name": "mlp", "hidden": [width, width]},
        "train": {"steps": 1, "batch_size": 4, "optimizer": {"name": "sgd", "lr": 0.1}},
        "evaluate": {"every": 0},
    }


async def time_rounds(deployment: Deployment, job: Mapping[str, Any]) -> RoundTimes:
    """Run a job and read the rounds' ends from its events."""
    run = await asyncio.to_thread(deployment.project.run, job)
    ends = await asyncio.to_thread(_round_ends, run)
    if run.state != "completed":
        raise RuntimeError(f"the run ended {run.state}: {run.view.reason}")
    return RoundTimes([later - earlier for earlier, later in itertools.pairwise(ends)])


def _round_ends(run: Run) -> list[float]:
    return [event.at.timestamp() for event in run.watch() if event.kind == "round-finished"]


def cpu_seconds() -> float:
    """What all children of this process, servers and sites, have used of a core so far. A busy machine changes it much
    less than what a clock shows."""
    total = 0.0
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            used = child.cpu_times()
            total += used.user + used.system + used.children_user + used.children_system
    return total


def resident_mib(deployment: Deployment) -> dict[str, float]:
    """Resident memory of the hub's services now."""
    pids = deployment.hub.supervisor.pids()
    return {name: psutil.Process(pids[name]).memory_info().rss / 2**20 for name in SERVICES}


def aggregator_peak_mib(deployment: Deployment) -> float:
    """The aggregator's largest resident memory so far, as Linux counts it."""
    pid = deployment.hub.supervisor.pids()["aggregator"]
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
