"""Distributed noise by real processes, in every mode: it is in the sum, as much as asked for, and charged."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from e2e.digits_runs import SCHEMA, share_digits
from hanse.embedded.deployment import Deployment

SITES = ["east", "north", "south"]

pytestmark = pytest.mark.timeout(300)


ROTATED = {"rotate": True, "bits": 16, "bound": 1.0}
SEEDS = {"compensator": 1, "pairwise": 2}


def job(noise: str, mode: str, multiplier: float) -> dict[str, Any]:
    shares: dict[str, Any] = {"noise": noise}
    if noise in ("gaussian", "rotated"):
        shares = {"mechanism": "discrete_gaussian", "colluding": 1}
    elif noise == "distributed-gamma":
        shares["colluding"] = 1
    return {
        "rounds": 1,
        "weighting": "uniform",
        "participants": {"minimum": len(SITES), "deadline": 120},
        "model": {"name": "logistic"},
        # A work, and those near to it, have one compensator, or none, and one norm: these begin with other models.
        "seed": SEEDS[mode] + {"gaussian": 2, "rotated": 4}.get(noise, 0),
        "train": {"epochs": 8, "batch_size": 32, "optimizer": {"name": "sgd", "lr": 0.5}},
        "checkpoint_every": 0,
        "secure_aggregation": {"mode": mode} | (ROTATED if noise == "rotated" else {}),
        "privacy": {
            "placement": "distributed",
            "mechanism": "discrete_laplace",
            "clip": 50.0,
            "noise_multiplier": multiplier,
        }
        | shares,
    }


RUNS = [
    ("oblivious", "compensator", 1e-4),
    ("oblivious-shuffled", "compensator", 1e-4),
    ("distributed-gamma", "pairwise", 1e-4),
    ("local-laplace", "pairwise", 1e-4),
    ("gaussian", "compensator", 1e-4),
    ("rotated", "compensator", 1e-4),
    ("oblivious", "compensator", 0.2),
    ("distributed-gamma", "compensator", 0.2),
]


async def test_noise_of_every_mode_is_in_the_sum_and_is_charged(tmp_path: Path) -> None:
    files = share_digits(tmp_path / "data", SITES)
    async with Deployment(tmp_path, "digits", files, SCHEMA, nursery=True) as deployment:
        for noise, mode, multiplier in RUNS:
            run = await asyncio.to_thread(deployment.project.run, job(noise, mode, multiplier))
            await asyncio.to_thread(run.wait)
            assert run.state == "completed", f"{noise}, {mode}: {run.state}: {run.view.reason}"
            # Little noise leaves the model as it is; noise as large as an update does not.
            assert (run.view.metrics["accuracy"] > 0.5) is (multiplier < 0.1), (noise, mode)
        again = job("gaussian", "compensator", 1e-4) | {"secure_aggregation": {"mode": "pairwise"}}
        run = await asyncio.to_thread(deployment.project.run, again)
        await asyncio.to_thread(run.wait)
        assert run.state == "failed"
        assert "this work was done for another project, or with another compensator" in run.view.reason
        lines = (deployment.home("north") / "privacy.jsonl").read_text().splitlines()
    charged = [entry for entry in map(json.loads, lines) if "distributed" in entry.get("note", "")]
    kinds = [entry["event"]["kind"] for entry in charged]
    assert (len(kinds), kinds.count("chance")) == (2 * len(RUNS), len(RUNS))  # the noise, and its rounding
