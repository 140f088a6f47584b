"""Metrics with noise of their own, from the job to the run's metrics: alone, in masked sums, beside shares of noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hanse_fabric.chain import read_chain
from hanse_privacy.ledger import NAME
from simulation.played import play

ASKED = {"epsilon": 0.5, "bounds": {"loss": 4.0}}
LOCAL = {"placement": "local", "mechanism": "gaussian", "clip": 1.0, "noise_multiplier": 4.0}
SHARES = {"placement": "distributed", "mechanism": "discrete_gaussian", "clip": 1.0, "noise_multiplier": 4.0}
MASKS = {"mode": "compensator", "bits": 64}
JOB: dict[str, Any] = {
    "rounds": 2, "model": {"name": "linear"}, "seed": 7, "weighting": "uniform",
    "participants": {"minimum": 3, "deadline": 60.0, "patience": 600.0},
}  # fmt: skip


@pytest.mark.parametrize(
    ("privacy", "masks"), [(LOCAL, None), (LOCAL, MASKS), (SHARES, MASKS), (SHARES, MASKS | {"mode": "pairwise"})],
    ids=["plain", "masked", "shares", "pairwise"],
)  # fmt: skip
def test_sites_that_require_privacy_train_and_evaluate_and_charge_every_number_that_leaves(
    tmp_path: Path, privacy: dict[str, Any], masks: dict[str, Any] | None
) -> None:
    job = JOB | {"privacy": privacy | {"metrics": ASKED}} | ({} if masks is None else {"secure_aggregation": masks})
    played = play(tmp_path, job, sites=3, rules={"privacy": {"required": True}})
    assert set(played.record.metrics) >= {"loss", "train_loss"}
    charged = [entry for entry in read_chain(tmp_path / "site-0", NAME) if entry["what"] == "charge"]
    assert [(entry["work"].split("/")[0], entry["work"].split("/")[4:]) for entry in charged] == [
        (step, list(part))
        for number in (1, 2)
        for step, part in [
            (f"r{number}-train", ()),
            *([(f"r{number}-train", ("rounding",))] if privacy is SHARES else []),
            (f"r{number}-train", ("metrics",)),
            (f"r{number}-evaluate", ("metrics",)),
        ]
    ]
    assert {entry["event"]["amount"] for entry in charged if entry["work"].endswith("/metrics")} == {0.5}
