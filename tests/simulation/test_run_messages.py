"""What a user with a table of her own is told when a run goes wrong: by the true trainer, on raw hospital columns."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer

from hanse_datapod.data.load import SiteData, read_site_tables
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.rehearsal.site import RehearsedSite
from hanse_fabric.errors import HanseError
from hanse_schemas.job import check_job
from hanse_schemas.schema import Column, TabularSchema
from hanse_workflows.memory import conduct

SHARES = {"north": 0.5, "south": 0.3, "west": 0.2}
POOL = load_breast_cancer(as_frame=True).frame.sample(frac=1.0, random_state=1).reset_index(drop=True)
SCHEMA = TabularSchema(
    features=tuple(Column(name=name) for name in POOL.columns if name != "target"), target="target", classes=2
)
JOB: dict[str, Any] = {
    "rounds": 8, "model": {"name": "logistic"}, "participants": {"minimum": 3, "patience": 1}, "checkpoint_every": 0,
    "train": {"epochs": 1, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 0.05}},
}  # fmt: skip


def ran(folder: Path, job: dict[str, Any], pool: pd.DataFrame = POOL) -> tuple[list[tuple[int, str]], dict[str, float]]:
    """(warnings, and why it stopped, with their rounds; the last metrics) of a run in memory of three uneven sites."""
    sites, start = {}, 0
    for name, share in SHARES.items():
        stop = start + round(share * len(pool))
        path = folder / f"{name}.csv"
        pool[start:stop].to_csv(path, index=False)
        start = stop
        tables = read_site_tables(DataSettings(train=path), SCHEMA)
        test = None if tables.test is None else tables.test.examples
        (folder / name).mkdir()
        sites[name] = RehearsedSite(folder / name, SiteData(tables.train.examples, test), SCHEMA, None, tables)
    notes: list[tuple[int, str]] = []

    def told(kind: str, number: int, data: Any) -> None:
        if kind == "note" and data.get("warning"):
            notes.append((number, data["warning"]))
        if kind == "round-finished" and data.get("stop"):
            notes.append((number, data["stop"]))

    made = conduct(check_job(job), sites, schema=SCHEMA, told=told)
    return notes, dict(made.metrics)


@pytest.mark.parametrize(
    ("evaluate", "warning"),
    [
        ({}, "auroc has been 0.5000 for 5 rounds: the model ranks no better than chance"),
        ({"metrics": []}, "matthews has been 0.0000 for 5 rounds: the model predicts one class"),
    ],
)
def test_columns_that_nobody_scales_are_warned_of_in_the_run(
    tmp_path: Path, evaluate: dict[str, Any], warning: str
) -> None:
    slow = JOB["train"] | {"clip_norm": 1e-6}
    notes, _ = ran(tmp_path, JOB | {"prepare": "none", "train": slow, "evaluate": evaluate})
    assert [number for number, _ in notes] == [5]
    assert notes[0][1].startswith(warning)


def test_control_the_same_columns_scaled_are_learnt_without_a_word(tmp_path: Path) -> None:
    notes, metrics = ran(tmp_path, JOB)
    assert notes == []
    assert metrics["matthews"] > 0.8


def test_a_run_that_diverges_ends_and_says_at_which_sites_and_steps(tmp_path: Path) -> None:
    train = {"epochs": 5, "batch_size": 1, "optimizer": {"name": "sgd", "lr": 1e6, "momentum": 0.99}}
    with pytest.raises(HanseError, match=r"north failed \(training diverged: the loss is (nan|inf) at step \d+"):
        ran(tmp_path, JOB | {"train": train, "model": {"name": "mlp", "hidden": [8, 8, 8, 8]}})


def test_a_run_that_gets_worse_and_worse_is_warned_of(tmp_path: Path) -> None:
    train = {"epochs": 1, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 0.05}}
    strategy = {"optimizer": {"name": "sgd", "lr": 12.0}}
    notes, _ = ran(tmp_path, JOB | {"rounds": 12, "train": train, "strategy": strategy})
    assert any("training diverges; lower" in warning for _, warning in notes), notes


def test_a_class_that_one_site_lacks_is_learnt_of_the_others(tmp_path: Path) -> None:
    pool = POOL.copy()
    west = np.arange(len(pool)) >= round(0.8 * len(pool))
    pool = pd.concat([pool[~west], pool[west & (pool["target"] == 1)], pool[west & (pool["target"] == 1)]])
    _, metrics = ran(tmp_path, JOB, pool.reset_index(drop=True))
    assert metrics["accuracy"] > 0.9


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"stop": {"metric": "loss"}}, r"stop: give patience, target, or both; or keep: best"),
        ({"stop": {"metric": "aurocc", "patience": 2}}, r"'aurocc', which is none of Hanse's own metrics"),
        ({"stop": {"metric": "r2", "patience": 2}}, r"stop.metric: 'r2' is not"),
        ({"train": {"batch_size": 10**9}}, r"batch_size.*less than or equal to 16777216"),
        ({"train": {"loss": "hinge"}}, r"loss"),
    ],
    ids=["no reason to stop", "no metric", "another task's metric", "huge batch", "no loss"],
)
def test_what_cannot_be_is_refused_at_submission(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(HanseError, match=said):
        ran(tmp_path, JOB | changes)


def test_why_a_run_stopped_by_its_loss_is_told_with_the_numbers(tmp_path: Path) -> None:
    [(_, why)], metrics = ran(
        tmp_path, JOB | {"rounds": 60, "stop": {"metric": "loss", "patience": 2, "min_delta": 0.01}}
    )
    best = re.fullmatch(r"loss has not improved on (0\.\d+) for 2 evaluations", why)
    assert best, why
    assert metrics["loss"] - 0.01 < float(best[1]) < 0.3
