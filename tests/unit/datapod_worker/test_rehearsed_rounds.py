"""Rehearsals of algorithms with two halves: the hub's is done, too, and test data are never trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hanse_datapod.rehearsal.training import evaluate_file, rehearse
from hanse_fabric.errors import HanseError
from hanse_fabric.tensors.file import read_tensors
from hanse_schemas.job import check_job

STEPS: dict[str, Any] = {"steps": 5, "batch_size": "all"}


def write(path: Path, seed: int) -> Path:
    y = np.arange(60) % 3
    x = np.random.default_rng(seed).normal(size=(60, 4)) + 2 * np.eye(3, 4)[y]
    np.savez(path, x=x.astype(np.float32), y=y)
    return path


@pytest.fixture
def data(tmp_path: Path) -> tuple[Path, Path]:
    return write(tmp_path / "train.npz", 0), write(tmp_path / "test.npz", 1)


def rehearsed(
    folder: Path, data: tuple[Path, Path], rounds: int = 6, **job: Any
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    described = check_job({"rounds": rounds, "model": {"name": "mlp", "dtype": "float64"}, "train": STEPS} | job)
    metrics = rehearse(described, data[0], [data[1]], output=folder / "model")
    return metrics[str(data[1])], read_tensors(folder / "model")[1]


def test_scaffold_with_a_single_site_equals_plain_training(tmp_path: Path, data: tuple[Path, Path]) -> None:
    """One site's drift is everybody's: with the server's variate carried, its corrections cancel."""
    _, plain = rehearsed(tmp_path, data)
    _, corrected = rehearsed(tmp_path, data, train=STEPS | {"algorithm": "scaffold"})
    for name, array in plain.items():
        np.testing.assert_allclose(corrected[name], array, atol=1e-12)


def test_feddyn_goes_on_learning_by_its_servers_half(tmp_path: Path, data: tuple[Path, Path]) -> None:
    both: dict[str, Any] = {
        "train": STEPS | {"algorithm": {"name": "feddyn", "alpha": 0.5}},
        "strategy": {"optimizer": {"name": "feddyn", "alpha": 0.5}},
    }
    fitted = (data[0], data[0])
    few, _ = rehearsed(tmp_path, fitted, rounds=2, **both)
    many, _ = rehearsed(tmp_path, fitted, rounds=20, **both)
    assert many["loss"] < 0.5 * few["loss"]


def test_a_rehearsal_uses_the_jobs_server_optimizer(tmp_path: Path, data: tuple[Path, Path]) -> None:
    _, plain = rehearsed(tmp_path, data, rounds=2)
    _, still = rehearsed(tmp_path, data, rounds=2, strategy={"optimizer": {"name": "sgd", "lr": 1.0, "momentum": 0.0}})
    _, moved = rehearsed(tmp_path, data, rounds=2, strategy={"optimizer": {"name": "sgd", "lr": 1.0, "momentum": 0.9}})
    for name, array in plain.items():
        np.testing.assert_allclose(still[name], array, atol=1e-15)
    assert np.abs(moved["output.weight"] - plain["output.weight"]).max() > 1e-3


def test_a_rehearsal_evaluates_with_local_entries_and_a_model_file_without_them_is_refused(
    tmp_path: Path, data: tuple[Path, Path]
) -> None:
    metrics, model = rehearsed(tmp_path, data, rounds=20, train=STEPS | {"algorithm": "fedrep"})
    assert "output.weight" not in model
    assert metrics["accuracy"] > 0.6
    job = check_job({"rounds": 1, "model": {"name": "mlp"}, "train": {"algorithm": "fedrep"}})
    with pytest.raises(HanseError, match="stay at the sites"):
        evaluate_file(tmp_path / "model", job, [data[1]])
    own = {"name": "own", "state": [{"match": "head", "keep": "local"}]}
    of_code = check_job({"rounds": 1, "model": own, "code": {"name": "code", "digest": "0" * 64}})
    with pytest.raises(HanseError, match="stay at the sites"):
        evaluate_file(tmp_path / "model", of_code, [data[1]])


def test_a_model_file_is_evaluated_without_adapting_it_first(tmp_path: Path, data: tuple[Path, Path]) -> None:
    """Per-FedAvg would adapt it on the test data here; a rehearsal adapts it on the training data."""
    train = STEPS | {"algorithm": {"name": "per_fedavg", "alpha": 0.5, "adapt_steps": 20}}
    adapted, _ = rehearsed(tmp_path, data, rounds=1, train=train)
    body: dict[str, Any] = {"rounds": 1, "model": {"name": "mlp", "dtype": "float64"}}
    given = evaluate_file(tmp_path / "model", check_job(body | {"train": train}), [data[1]])[str(data[1])]
    plain = evaluate_file(tmp_path / "model", check_job(body | {"train": STEPS}), [data[1]])[str(data[1])]
    assert given == plain
    assert given["loss"] > adapted["loss"]
