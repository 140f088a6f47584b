"""Rehearsals are runs of one site: the hub's part is done, too, and test data are never trained on."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hanse_datapod.cli import main
from hanse_datapod.data.load import read_site_table
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.rehearsal.training import evaluate_file, rehearse
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.tensors.file import read_tensors
from hanse_learning.preparation.measured import measured
from hanse_learning.preparation.plan import fitted
from hanse_schemas.job import check_job
from hanse_schemas.prepare import Prepare, completed
from hanse_schemas.schema import Column, TabularSchema

STEPS: dict[str, Any] = {"steps": 5, "batch_size": "all"}
FAILING = """
import numpy as np

def initialize(config):
    return {{"weight": np.zeros(4, np.float32)}}

def train(model, data, config):
    open({count!r}, "a").write("x")
    raise ValueError("nothing fits")

def test(model, data, config):
    return 1, {{"loss": 0.0}}
"""


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


@pytest.mark.parametrize(
    "strategy",
    [
        {"reduction": {"name": "norm_clipping", "norm": 1e-3}},
        {"optimizer": {"name": "adam", "lr": 1e-3}, "reduction": {"name": "median"}},
    ],
)
def test_a_rehearsal_reduces_as_the_strategy_says(
    tmp_path: Path, data: tuple[Path, Path], strategy: dict[str, Any]
) -> None:
    _, plain = rehearsed(tmp_path, data, rounds=1)
    _, reduced = rehearsed(tmp_path, data, rounds=1, strategy=strategy)
    assert not np.array_equal(plain["output.weight"], reduced["output.weight"])


def test_a_reduction_that_takes_several_updates_becomes_the_mean_and_the_user_is_told(
    tmp_path: Path, data: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    krum = {"reduction": {"name": "krum", "byzantine": 1}}
    _, plain = rehearsed(tmp_path, data, rounds=2)
    job = tmp_path / "job.json"
    body = {
        "rounds": 2, "model": {"name": "mlp", "dtype": "float64"}, "train": STEPS, "strategy": krum,
        "participants": {"minimum": 5},
    }  # fmt: skip
    job.write_text(json.dumps(body))
    asked = [
        "rehearse",
        str(job),
        "--data",
        str(data[0]),
        "--test",
        str(data[1]),
        "--output",
        str(tmp_path / "by-krum"),
    ]
    assert main(asked) == 0
    assert "note: strategy.reduction: krum takes 5 updates at least" in capsys.readouterr().err
    for name, array in read_tensors(tmp_path / "by-krum")[1].items():
        np.testing.assert_array_equal(array, plain[name])


def test_one_site_is_enough_whatever_the_job_says_of_many(tmp_path: Path, data: tuple[Path, Path]) -> None:
    _, plain = rehearsed(tmp_path, data, rounds=2)
    many: dict[str, Any] = {
        "participants": {"minimum": 7, "fraction": 0.5, "quorum": 0.9},
        "secure_aggregation": {"mode": "pairwise", "minimum": 5},
    }
    _, alone = rehearsed(tmp_path, data, rounds=2, **many)
    for name, array in plain.items():
        np.testing.assert_array_equal(alone[name], array)


def test_a_rehearsal_hears_what_the_hub_refuses_of_the_job_as_it_is(tmp_path: Path, data: tuple[Path, Path]) -> None:
    masked: dict[str, Any] = {"participants": {"minimum": 3}, "secure_aggregation": {"mode": "compensator"}}
    with pytest.raises(HanseError, match=r"secure_aggregation.mode: 'compensator' is not absent"):
        rehearsed(tmp_path, data, workflow="cyclic_weight_transfer", **masked)
    pairwise = {"mode": "pairwise", "threshold": 3}
    with pytest.raises(HanseError, match="threshold: 3 is not more than half of the 7 participants"):
        rehearsed(tmp_path, data, participants={"minimum": 7}, secure_aggregation=pairwise)


def test_a_rehearsal_stops_where_the_run_would(tmp_path: Path, data: tuple[Path, Path]) -> None:
    at_once = {"stop": {"metric": "loss", "mode": "min", "target": 1e9}, "evaluate": {"every": 2}}
    stopped, _ = rehearsed(tmp_path, data, rounds=30, **at_once)
    assert stopped == rehearsed(tmp_path, data, rounds=2)[0]


def test_a_rehearsal_begins_with_the_jobs_initial_model(tmp_path: Path, data: tuple[Path, Path]) -> None:
    _, four = rehearsed(tmp_path, data, rounds=4)
    rehearsed(tmp_path, data, rounds=2)
    first = (tmp_path / "model").rename(tmp_path / "first")
    body = {"rounds": 2, "model": {"name": "mlp", "dtype": "float64"}, "train": STEPS}
    job = check_job(body | {"initial_model": hashlib.sha256(first.read_bytes()).hexdigest()})
    rehearse(job, data[0], [data[1]], initial=first, output=tmp_path / "model")
    for name, array in read_tensors(tmp_path / "model")[1].items():
        np.testing.assert_allclose(array, four[name], rtol=1e-12)
    with pytest.raises(HanseError, match="initial: None is not the file of the job's initial_model"):
        rehearse(job, data[0], [data[1]])
    with pytest.raises(HanseError, match="not those of"):
        rehearse(job, data[0], [data[1]], initial=tmp_path / "model")
    with pytest.raises(HanseError, match="the job names no initial_model"):
        rehearse(check_job(body), data[0], [data[1]], initial=first)


def test_what_the_work_fails_by_is_told_as_it_is(
    tmp_path: Path, data: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Not as a run that missed its quorum. A second try would fail likewise: there is none."""
    code = tmp_path / "code.py"
    count = tmp_path / "count"
    code.write_text(FAILING.format(count=str(count)))
    described = {"name": "code", "digest": hashlib.sha256(code.read_bytes()).hexdigest()}
    job = tmp_path / "job.json"
    job.write_text(json.dumps({"rounds": 3, "code": described}))
    asked = ["rehearse", str(job), "--data", str(data[0]), "--test", str(data[1]), "--code", str(code)]
    assert main(asked) == ErrorCode.TRAINING_FAILED.value.exit_status
    assert (
        "error: site code code.py, line 9: train raised ValueError [found: nothing fits]\n" in capsys.readouterr().err
    )
    assert count.read_text() == "x"


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


def test_a_site_alone_has_no_turns_and_is_told_so(tmp_path: Path, data: tuple[Path, Path]) -> None:
    matrix = {"name": "banded", "bands": 3}
    privacy = {"placement": "central", "mechanism": "dp_ftrl", "noise_multiplier": 1e-6, "clip": 1e3}
    job = check_job(
        {"rounds": 4, "model": {"name": "mlp"}, "train": STEPS, "weighting": "uniform",
         "privacy": privacy | {"min_separation": 3, "matrix": matrix}, "participants": {"minimum": 2, "fraction": 0.3}}
    )  # fmt: skip
    told: list[str] = []
    metrics = rehearse(job, data[0], [data[1]], output=tmp_path / "model", told=told.append)
    assert metrics[str(data[1])]["accuracy"] > 0.5
    assert any("privacy.min_separation" in line for line in told)


def test_a_raw_table_is_rehearsed_as_it_is_trained_on_and_its_model_evaluated_with_its_preparation(
    tmp_path: Path,
) -> None:
    schema = TabularSchema(
        features=(Column(name="x"), Column(name="c", kind="category", values=("a", "b"))), target="y", classes=2
    )
    draw = np.random.default_rng(0)
    for name in ("train.csv", "test.csv"):
        x = draw.normal(1000, 300, size=80)
        cells = ["" if at % 10 == 0 else f"{value:.3f}" for at, value in enumerate(x)]
        rows = [
            f"{cell},{'ab'[at % 2]},{int(value > 1000)}" for at, (cell, value) in enumerate(zip(cells, x, strict=True))
        ]
        (tmp_path / name).write_text("\n".join(["x,c,y", *rows]))
    job = check_job({"rounds": 20, "model": {"name": "logistic"}, "train": {"epochs": 2, "batch_size": 20}})
    told: list[str] = []
    tests = [tmp_path / "test.csv"]
    metrics = rehearse(job, tmp_path / "train.csv", tests, schema=schema, output=tmp_path / "model", told=told.append)
    assert metrics[str(tests[0])]["accuracy"] > 0.85
    with pytest.raises(HanseError, match=r"prepare\.fitted: None is not what the run has found"):
        evaluate_file(tmp_path / "model", job, tests, schema=schema)
    table = read_site_table(tmp_path / "train.csv", DataSettings(), schema)
    rules = completed(Prepare(), schema).rules
    found = fitted(rules, {name: array.tolist() for name, array in measured(rules, table.columns).items()})
    whole = job.model_copy(update={"prepare": Prepare(fitted=found)})
    assert evaluate_file(tmp_path / "model", whole, tests, schema=schema) == metrics


@pytest.mark.parametrize(
    "privacy",
    [
        {"placement": "local", "mechanism": "dp_sgd", "epsilon": 20.0, "delta": 1e-3},
        {"placement": "distributed", "mechanism": "discrete_laplace", "noise": "local-laplace", "epsilon": 200.0},
    ],
    ids=["rows", "sites"],
)
def test_a_private_raw_table_is_rehearsed_with_all_the_noise_of_a_sum(tmp_path: Path, privacy: dict[str, Any]) -> None:
    schema = TabularSchema(features=(Column(name="x", minimum=0, maximum=1000),), target="y", classes=2)
    draw = np.random.default_rng(0)
    for name in ("train.csv", "test.csv"):
        rows = [f"{value:.2f},{int(value > 500)}" for value in draw.uniform(0, 1000, size=300)]
        (tmp_path / name).write_text("\n".join(["x,y", *rows]))
    job = check_job(
        {
            "rounds": 3, "model": {"name": "logistic"}, "train": {"epochs": 3, "batch_size": 30}, "prepare": {},
            "participants": {"minimum": 3}, "privacy": privacy, "weighting": "uniform",
        }
        | ({"secure_aggregation": {"mode": "compensator", "bits": 64}} if privacy["placement"] != "local" else {})
    )  # fmt: skip
    tests = [tmp_path / "test.csv"]
    metrics = rehearse(job, tmp_path / "train.csv", tests, schema=schema)
    assert metrics[str(tests[0])].keys() >= {"accuracy", "loss"}
    if privacy["placement"] == "local":  # one site alone is no crowd that hides it
        assert metrics[str(tests[0])]["accuracy"] > 0.8
    open_ends = TabularSchema(features=(Column(name="x"),), target="y", classes=2)
    with pytest.raises(HanseError, match=r"x\.clip"):
        rehearse(job, tmp_path / "train.csv", tests, schema=open_ends)


LOADING = """
import numpy as np

def load():
    y = np.arange(60) % 3
    x = np.random.default_rng(0).normal(size=(60, 4)) + 2 * np.eye(3, 4)[y]
    return {"train": (x.astype(np.float32), y)}
"""


def test_one_file_is_enough_and_a_part_of_it_is_set_aside(
    tmp_path: Path, data: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("{rounds: 4, model: {name: mlp}, train: {steps: 5, batch_size: all}}")
    asked = ["rehearse", str(job), "--data", str(data[0]), "--json"]
    assert main(asked) == 0
    (name, metrics), *more = json.loads(capsys.readouterr().out)["tests"].items()
    assert (name, more) == (str(data[0]), [])
    assert metrics["accuracy"] > 0.5
    assert main([*asked, "--also", str(data[1])]) == ErrorCode.INVALID_INPUT.value.exit_status
    assert "--also" in capsys.readouterr().err


def test_a_schema_is_read_as_the_hub_reads_it(
    tmp_path: Path, data: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    job, schema = tmp_path / "job.yaml", tmp_path / "schema.yaml"
    job.write_text("{rounds: 1, model: {name: mlp}, train: {steps: 5, batch_size: all}}")
    schema.write_text("kind: array\nshape: [4]\nclasses: 3\n")
    asked = ["rehearse", str(job), "--data", str(data[0]), "--schema", str(schema), "--json"]
    assert main(asked) == 0
    capsys.readouterr()
    schema.write_text("kind: array\nshape: [5]\nclasses: 3\n")
    assert main(asked) == ErrorCode.SCHEMA_MISMATCH.value.exit_status


def test_data_of_site_code_s_load_are_rehearsed_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job, code = tmp_path / "job.yaml", tmp_path / "code.py"
    job.write_text("{rounds: 4, model: {name: mlp}, train: {steps: 5, batch_size: all}}")
    code.write_text(LOADING)
    assert main(["rehearse", str(job), "--code", str(code), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tests"][str(code)]["accuracy"] > 0.5
    assert main(["rehearse", str(job), "--json"]) == ErrorCode.INVALID_INPUT.value.exit_status
    told = capsys.readouterr().err
    assert '"data: none are given"' in told
    assert "give --data FILE; or --code FILE alone" in told


def test_a_table_with_empty_cells_rehearsed_without_a_schema_is_told_to_give_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job, table, schema = tmp_path / "job.yaml", tmp_path / "ward.csv", tmp_path / "schema.yaml"
    job.write_text("{rounds: 1, model: {name: logistic}, train: {steps: 2, batch_size: all}}")
    rows = [f"{number % 7},{number % 2}" for number in range(60)]
    table.write_text("\n".join(["age,ill", *rows[:-1], ",1"]) + "\n")
    asked = ["rehearse", str(job), "--data", str(table)]
    assert main(asked) == ErrorCode.SCHEMA_MISMATCH.value.exit_status
    told = capsys.readouterr().err
    assert "--schema FILE" in told
    assert "or the project's schema" not in told
    schema.write_text("{kind: tabular, features: [{name: age}], target: ill, classes: 2}")
    assert main([*asked, "--schema", str(schema)]) == 0
