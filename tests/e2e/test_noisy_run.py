"""Distributed noise by real processes, in the modes in which others choose what of it is added."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from hanse.embedded.deployment import Deployment, SiteFiles
from hanse_learning.digits import write_shares

SITES = ["east", "north", "south", "west"]
SCHEMA = {"kind": "array", "shape": [64], "task": "classification", "classes": 10, "minimum": 0, "maximum": 1}

pytestmark = pytest.mark.timeout(300)


def job(noise: str, **privacy: Any) -> dict[str, Any]:
    return {
        "rounds": 3,
        "weighting": "uniform",
        "participants": {"minimum": len(SITES), "deadline": 120},
        "model": {"name": "logistic"},
        "train": {"epochs": 2, "batch_size": 32, "optimizer": {"name": "sgd", "lr": 0.2}},
        "checkpoint_every": 0,
        "secure_aggregation": {"mode": "compensator"},
        "privacy": {"placement": "distributed", "mechanism": "discrete_laplace", "noise": noise, "clip": 50.0}
        | privacy,
    }


async def test_noise_that_others_choose_is_in_the_sum_and_is_charged(tmp_path: Path) -> None:
    write_shares(tmp_path / "data", SITES, seed=3)
    files = {
        name: SiteFiles(tmp_path / "data" / name / "train.npz", tmp_path / "data" / name / "test.npz") for name in SITES
    }
    async with Deployment(tmp_path, "digits", files, SCHEMA) as deployment:
        accuracies: dict[str, float] = {}
        for noise, multiplier in (("oblivious", 1e-4), ("oblivious-shuffled", 1e-4), ("oblivious", 0.2)):
            run = await asyncio.to_thread(deployment.project.run, job(noise, noise_multiplier=multiplier))
            await asyncio.to_thread(run.wait)
            assert run.state == "completed", f"{run.state}: {run.view.reason}"
            accuracies[f"{noise} {multiplier:g}"] = run.view.metrics["accuracy"]
        # Little noise leaves the model as it is; noise of the size of an update, of each of four sites, does not.
        assert accuracies["oblivious 0.0001"] > 0.6
        assert accuracies["oblivious-shuffled 0.0001"] > 0.6
        assert accuracies["oblivious 0.2"] < 0.5
        lines = (deployment.home("north") / "privacy.jsonl").read_text().splitlines()
    charged = [entry for entry in map(json.loads, lines) if "distributed" in json.dumps(entry)]
    assert len(charged) == 9
