"""Federated beside each site alone and the pooled data, measured by the datapod's own rehearsal and evaluation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hanse.demo.program import output_of


@dataclass(frozen=True)
class Comparison:
    """Accuracies on the held-out examples of all classes, and on each site's own test examples."""

    federated: float
    federated_by_site: dict[str, float]
    alone: dict[str, float]
    pooled: float
    pooled_by_site: dict[str, float]
    alone_on_own: dict[str, float]

    @property
    def federated_min_site(self) -> float:
        return min(self.federated_by_site.values())

    @property
    def local_mean(self) -> float:
        return sum(self.alone.values()) / len(self.alone)


async def compare(folder: Path, model: Path, sites: Sequence[str]) -> Comparison:
    """Rehearse the job at each site alone and on the pooled data; evaluate all on the same held-out examples."""
    held_out = folder / "data" / "held-out.npz"
    tests = {name: folder / "data" / name / "test.npz" for name in sites}
    job = folder / "job.json"

    async def evaluate() -> dict[str, float]:
        return await _accuracies(["evaluate", str(model), "--job", str(job), *_tests([held_out, *tests.values()])])

    async def alone(name: str) -> dict[str, float]:
        data = folder / "data" / name / "train.npz"
        return await _accuracies(["rehearse", str(job), "--data", str(data), *_tests([held_out, tests[name]])])

    async def pooled() -> dict[str, float]:
        data = folder / "data" / "pooled.npz"
        return await _accuracies(["rehearse", str(job), "--data", str(data), *_tests([held_out, *tests.values()])])

    limit = asyncio.Semaphore(2)  # one core each

    async def limited(work: Any) -> dict[str, float]:
        async with limit:
            found: dict[str, float] = await work
            return found

    found = await asyncio.gather(limited(evaluate()), limited(pooled()), *(limited(alone(name)) for name in sites))
    by_site = dict(zip(sites, found[2:], strict=True))
    return Comparison(
        federated=found[0][str(held_out)],
        federated_by_site={name: found[0][str(path)] for name, path in tests.items()},
        alone={name: by_site[name][str(held_out)] for name in sites},
        pooled=found[1][str(held_out)],
        pooled_by_site={name: found[1][str(path)] for name, path in tests.items()},
        alone_on_own={name: by_site[name][str(tests[name])] for name in sites},
    )


def _tests(paths: list[Path]) -> list[str]:
    first, *others = (str(path) for path in paths)
    return ["--test", first, *(["--also", *others] if others else []), "--json"]


async def _accuracies(arguments: list[str]) -> dict[str, float]:
    output = await output_of("hanse_datapod", *arguments)
    answer = json.loads(output.splitlines()[-1])
    return {path: metrics["accuracy"] for path, metrics in answer["tests"].items()}
