"""Private work in the worker: noise for built-in trainers and site code, and nothing else of the data gets out."""

from __future__ import annotations

import hashlib
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hanse_datapod.data.load import read_site_data
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.rehearsal.training import rehearse
from hanse_datapod.worker.port import WorkOutcome
from hanse_datapod.worker.work.context import WorkContext
from hanse_datapod.worker.work.execute import execute
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import TaskKind
from hanse_fabric.tensors.file import read_tensors
from hanse_schemas.job import check_job
from hanse_schemas.schema import ArraySchema

SCHEMA = ArraySchema(shape=(2,), classes=2)
SGD = {"mechanism": "dp_sgd", "clip": 1.0, "scale": 1.0, "steps": 4, "batch": 20, "rate": 0.25}
UPDATE = {"mechanism": "gaussian", "clip": 1.0, "scale": 5.0}
CODE = """
import numpy as np
def initialize(config):
    return {"weights": np.zeros(3000, np.float32)}
def train(model, data, config):
    return {"weights": model["weights"] + 1}, len(data), {"loss": 0.25}
"""


class Bench:
    """A folder with data and a first model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        y = np.arange(80) % 2
        x = (np.random.default_rng(0).normal(size=(80, 2)) + 3 * y[:, None]).astype(np.float32)
        np.savez(folder / "ward.npz", x=x, y=y)
        self.code = folder / "mine.py"
        self.code.write_text(CODE)
        self.said: list[str] = []

    def do(self, kind: TaskKind, output: str, *, code: bool = False, **config: Any) -> WorkOutcome:
        if code:
            config["code"] = {"name": "mine", "digest": hashlib.sha256(self.code.read_bytes()).hexdigest()}
        read = partial(read_site_data, DataSettings(train=self.folder / "ward.npz"), SCHEMA)
        model = None if kind is TaskKind.INITIALIZE else self.folder / "model"
        work = WorkContext(
            kind, config, 1, 1, model, self.folder / output, self.folder / "state", SCHEMA, self.code if code else None,
            read, lambda _done, text: self.said.append(text),
        )  # fmt: skip
        return execute(work)

    def train(
        self, *, model: dict[str, Any], code: bool = False, **config: Any
    ) -> tuple[WorkOutcome, dict[str, np.ndarray]]:
        self.do(TaskKind.INITIALIZE, "model", model=model, code=code)
        done = self.do(TaskKind.TRAIN, "update", model=model, code=code, **config)
        return done, read_tensors(self.folder / "update")[1]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize("private", [SGD, UPDATE])
def test_private_work_tells_no_loss_and_has_other_noise_each_time(bench: Bench, private: dict[str, Any]) -> None:
    first, one = bench.train(model={"name": "mlp"}, privacy=private)
    again, two = bench.train(model={"name": "mlp"}, privacy=private)
    assert first.metrics == again.metrics == {}
    assert bench.said
    assert not any("loss" in text for text in bench.said)
    assert not np.array_equal(one["output.weight"], two["output.weight"])


def test_noise_on_the_update_has_its_scale(bench: Bench) -> None:
    _, update = bench.train(model={"name": "mlp", "hidden": [2000]}, privacy=UPDATE)
    assert update["hidden0.weight"].std() == pytest.approx(5.0, rel=0.06)


def test_the_update_of_site_code_gets_noise_and_its_metrics_do_not_leave(bench: Bench) -> None:
    done, update = bench.train(model={}, code=True, privacy=UPDATE)
    assert done.metrics == {}
    assert update["weights"].std() == pytest.approx(5.0, rel=0.06)
    assert abs(update["weights"].mean()) < 0.4  # 1.0 before it was clipped


@pytest.mark.parametrize(("lr", "decay"), [(0.1, 0.0), (1e6, 1e6)])
def test_control_variates_leave_beside_private_training_whether_it_fails_or_not(
    bench: Bench, lr: float, decay: float
) -> None:
    """Of training that diverges they are zero, as the update is."""
    train = {"algorithm": "scaffold", "optimizer": {"name": "sgd", "lr": lr, "weight_decay": decay}}
    done, update = bench.train(model={"name": "mlp"}, privacy=SGD, train=train)
    control = read_tensors(done.extras["control"])[1]
    assert control.keys() == update.keys()
    for name, change in update.items():
        expected = -change.astype(np.float64) / (4 * lr)  # four steps, from variates of zero
        np.testing.assert_allclose(control[name], expected, atol=1e-5)
        assert change.any() == (lr < 1)


def test_site_code_cannot_train_by_dp_sgd(bench: Bench) -> None:
    with pytest.raises(HanseError, match="dp_sgd"):
        bench.train(model={}, code=True, privacy=SGD)


def test_batch_statistics_stay_at_the_site_or_the_work_is_refused(bench: Bench) -> None:
    normed = {"name": "mlp", "batch_norm": True}
    with pytest.raises(HanseError, match="norm0"):
        bench.train(model=normed, privacy=UPDATE)
    _, update = bench.train(model={**normed, "buffers": {"*": "keep_local"}}, privacy=UPDATE)
    assert not any("running" in name for name in update)


def test_a_scale_of_zero_clips_the_update_and_adds_no_noise(bench: Bench) -> None:
    _, update = bench.train(model={"name": "mlp"}, privacy={**UPDATE, "clip": 0.01, "scale": 0.0})
    norm = np.sqrt(sum(float(np.square(array.astype(np.float64)).sum()) for array in update.values()))
    assert norm == pytest.approx(0.01, rel=1e-4)
    assert norm <= 0.01


@pytest.mark.parametrize(
    ("placement", "mechanism"),
    [("local", "dp_sgd"), ("local", "gaussian"), ("distributed", "gaussian"), ("central", "gaussian")],
)
def test_a_rehearsal_of_a_private_job_has_its_noise(bench: Bench, placement: str, mechanism: str) -> None:
    section = {"placement": placement, "mechanism": mechanism, "noise_multiplier": 1e-3}
    body = {"rounds": 1, "model": {"name": "logistic"}, "train": {"batch_size": 20}, "weighting": "uniform"}
    if placement == "distributed":
        body |= {"secure_aggregation": {"mode": "pairwise"}, "participants": {"minimum": 3}}
    data, results = bench.folder / "ward.npz", []
    for privacy in (section, section, None, None):
        output = bench.folder / "trained"
        rehearse(check_job(body | {"privacy": privacy}), data, [data], output=output)
        results.append(read_tensors(output)[1]["output.weight"].copy())
    assert not np.array_equal(results[0], results[1])
    assert np.array_equal(results[2], results[3])


def test_a_job_with_dp_sgd_trains_by_people_where_the_schema_says_whose_each_example_is(tmp_path: Path) -> None:
    whose = np.repeat(np.arange(20), 4)
    x = np.random.default_rng(0).normal(size=(80, 2)) + 3 * (whose % 2)[:, None]
    np.savez(tmp_path / "train.npz", x=x, y=whose % 2, patient=whose)
    np.savez(tmp_path / "test.npz", x=x[::4], y=whose[::4] % 2)  # of each patient one, and nobody's name
    schema = SCHEMA.model_copy(update={"unit": "patient"})
    privacy = {"placement": "local", "mechanism": "dp_sgd", "noise_multiplier": 0.1}
    train = {"epochs": 20, "batch_size": 10, "optimizer": {"name": "sgd", "lr": 0.5}}
    described = check_job({"rounds": 1, "model": {"name": "logistic"}, "privacy": privacy, "train": train})
    metrics = rehearse(described, tmp_path / "train.npz", [tmp_path / "test.npz"], schema=schema)
    assert metrics[str(tmp_path / "test.npz")]["accuracy"] > 0.9
    with pytest.raises(HanseError, match="patient, which says whose an example is, is missing"):
        rehearse(described, tmp_path / "test.npz", [tmp_path / "test.npz"], schema=schema)


def test_the_same_of_an_image_folder_whose_list_says_whose_each_image_is(tmp_path: Path) -> None:
    lines = ["file,patient"]
    for number in range(80):
        patient, label = number // 4, number // 4 % 2
        path = tmp_path / "train" / str(label) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 3), color=60 + 120 * label).save(path)
        lines.append(f"{label}/{path.name},p{patient}")
    shutil.copytree(tmp_path / "train", tmp_path / "test")  # of whom nobody asks whose
    (tmp_path / "train" / "units.csv").write_text("\n".join(lines))
    schema = ArraySchema(shape=(3, 4), classes=2, unit="patient")
    privacy = {"placement": "local", "mechanism": "dp_sgd", "noise_multiplier": 0.1}
    train = {"epochs": 40, "batch_size": 10, "optimizer": {"name": "sgd", "lr": 0.5}}
    described = check_job({"rounds": 1, "model": {"name": "logistic"}, "privacy": privacy, "train": train})
    metrics = rehearse(described, tmp_path / "train", [tmp_path / "test"], schema=schema)
    assert metrics[str(tmp_path / "test")]["accuracy"] > 0.9
    (tmp_path / "train" / "units.csv").unlink()
    with pytest.raises(HanseError, match="patient, which says whose an example is, is missing"):
        rehearse(described, tmp_path / "train", [tmp_path / "test"], schema=schema)
