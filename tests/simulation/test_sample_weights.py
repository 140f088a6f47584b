"""`train.sample_weights`: the loss of a row is times its weight, at whatever site it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_limits

from hanse.jobs import read_job
from hanse_coordinator.records import RunRecord
from hanse_datapod.data.load import SiteData, read_site_tables
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.rehearsal.site import RehearsedSite
from hanse_fabric.tensors.file import decode_tensors
from hanse_schemas.job import Job
from hanse_workflows.memory import conduct
from hanse_workflows.memory.conduct import Conducted
from simulation.league import League
from simulation.stories import outcomes_when_killed
from simulation.wards import SCHEMA, WARDS, Wards, ward_job

WEIGHTED = SCHEMA.model_copy(update={"weight": "counts"})
TRAIN = {"algorithm": "fedsgd", "sample_weights": True, "optimizer": {"name": "sgd", "lr": 0.5}}


@pytest.fixture(scope="module")
def wards(tmp_path_factory: pytest.TempPathFactory) -> Wards:
    """The dead count about nine times as much, and each ward's rows otherwise."""
    made = Wards.written(tmp_path_factory.mktemp("wards"))
    for number, path in enumerate(made.files.values()):
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
        draw = np.random.default_rng(number)
        frame["counts"] = (number + 1) * np.where(frame["died"] == "1", 9, 1) * draw.uniform(0, 0.5, len(frame))
        frame.to_csv(path, index=False)
    return replace(made, schema=WEIGHTED)


@pytest.fixture
def pooled(wards: Wards, tmp_path: Path) -> RehearsedSite:
    """One site that trains on what all train on."""
    parts = []
    for name in WARDS:
        rows = read_site_tables(wards.settings(name), WEIGHTED).train.rows
        parts.append(pd.read_csv(wards.files[name], dtype=str, keep_default_na=False).iloc[rows])
    path = tmp_path / "pooled.csv"
    pd.concat(parts).to_csv(path, index=False)
    tables = read_site_tables(DataSettings(train=path, test=path), WEIGHTED)
    assert tables.test is not None
    return RehearsedSite(tmp_path, SiteData(tables.train.examples, tables.test.examples), WEIGHTED, None, tables)


def job(mode: str | None, *, sites: int = 3, weights: bool = True) -> Job:
    return ward_job(
        mode, rounds=4, model={"name": "logistic", "dtype": "float64"}, train=TRAIN | {"sample_weights": weights},
        participants={"minimum": sites, "deadline": 30.0, "patience": 30.0},
    )  # fmt: skip


def parameters(made: Conducted) -> np.ndarray:
    assert made.model is not None
    _, arrays = decode_tensors(made.model)
    return np.concatenate([array.ravel() for _, array in sorted(arrays.items())])


def test_the_model_is_that_of_weighted_training_on_the_pooled_table(
    wards: Wards, pooled: RehearsedSite, tmp_path: Path
) -> None:
    with threadpool_limits(1):
        one = parameters(conduct(job(None, sites=1), {"east": pooled}, schema=WEIGHTED))
        sites = wards.in_memory(tmp_path / "sites")
        plain, masked, unweighted = (
            conduct(asked, sites, schema=WEIGHTED)
            for asked in (job(None), job("compensator"), job(None, weights=False))
        )
    assert np.abs(parameters(plain) - one).max() < 1e-12
    assert np.abs(parameters(masked) - one).max() < 1e-4  # of the masks' grid
    assert np.abs(parameters(unweighted) - one).max() > 0.05  # the control
    assert plain.metrics["loss"] != unweighted.metrics["loss"]


@pytest.mark.parametrize("mode", ["compensator", "pairwise"])
def test_masked_they_are_the_run_in_memory_though_the_coordinator_is_killed(
    wards: Wards, tmp_path: Path, mode: str
) -> None:
    def told(made: League, record: RunRecord) -> object:
        return record.model_digest

    asked = job(mode)
    with threadpool_limits(1):
        memory = conduct(asked, wards.in_memory(tmp_path / "memory"), schema=WEIGHTED)
        killed = outcomes_when_killed(
            tmp_path, WARDS, read_job(asked), every=101, told=told, known=True,
            worker=wards.worker, schema=WEIGHTED,
        )  # fmt: skip
    assert len(killed) > 1
    assert set(killed) == {memory.digest}
