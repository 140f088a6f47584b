"""A downloaded model is used without a hub: torch, scikit-learn and ONNX give what the sites' module gives."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest
import torch
from safetensors.numpy import load_file
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import partial_dependence
from sklearn.metrics import get_scorer, log_loss, roc_auc_score
from torch import nn

import hanse
from hanse_fabric.errors import HanseError
from hanse_fabric.tensors.file import encode_tensors
from hanse_learning.config import check_model
from hanse_learning.portable import TrainedModel
from hanse_learning.portable.plain_layers import plain
from hanse_learning.site.entries import arrays_of, entries_of
from hanse_learning.site.examples import pose
from hanse_learning.site.layers import KernelNorm1d, KernelNorm2d, KNConv1d, KNConv2d
from hanse_learning.site.models import build
from hanse_schemas.preparation import prepared_schema
from hanse_schemas.schema import ArraySchema, Column, Label, LearnableSchema, OpenSchema, TabularSchema
from onnx_sessions import onnx_session
from unit.hanse.signed_model import signed_model

AGES = ("age", "pulse", "weight", "height")
TABLE = TabularSchema(features=tuple(Column(name=name) for name in AGES), target="ill", classes=3)
TWO = TABLE.model_copy(update={"classes": 2})
VALUES = TabularSchema(features=TABLE.features, target="days", task="regression")
IMAGES = ArraySchema(shape=(3, 32, 32), classes=10)


def kept(folder: Path, model: dict[str, Any], schema: LearnableSchema, **given: Any) -> tuple[Path, nn.Module]:
    """A file and its record as a download leaves them, and the module that they are of."""
    preparation = given.get("preparation")
    seen = schema if preparation is None else prepared_schema(schema, preparation)  # type: ignore[arg-type]
    config = check_model(model, seen)
    loss = given.get("loss")
    module = build(config, pose(seen, None, loss=loss, inputs=config.inputs, outputs=config.outputs), seed=7)
    layout = entries_of(module, config.buffers).travelling
    content = encode_tensors(layout, {entry.name: arrays_of(module)[entry.name] for entry in layout})
    problem = {"schema": schema.model_dump(mode="json"), "model": config.model_dump(mode="json")}
    if preparation is not None:
        problem["preparation"] = preparation.model_dump(mode="json")
    signed = signed_model(content, problem=None if given.get("problem", 1) is None else problem)
    path = folder / "model.safetensors"
    path.write_bytes(content)
    (folder / "model.safetensors.json").write_bytes(signed.record.canonical())
    return path, module.eval()


def answered(path: Path, x: np.ndarray) -> np.ndarray:
    """What onnxruntime makes of examples."""
    session = onnx_session(path)
    [given] = session.run(None, {"features": x})
    return np.asarray(given)


def examples(n: int, shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(1).normal(size=(n, *shape)).astype(dtype)


def logits(module: nn.Module, x: np.ndarray) -> torch.Tensor:
    with torch.no_grad():
        return module(torch.from_numpy(x).to(next(module.parameters()).dtype)).double()


@pytest.mark.parametrize(
    ("model", "schema"),
    [
        ({"name": "logistic"}, TABLE),
        ({"name": "mlp", "hidden": [8, 5]}, TABLE),
        ({"name": "mlp", "normalization": "batch", "dtype": "float64"}, TABLE),
        ({"name": "mlp", "normalization": "kernel"}, TABLE),
        *(({"name": "cnn", "normalization": norm}, IMAGES) for norm in ("none", "batch", "layer", "kernel")),
        ({"name": "cnn", "normalization": "group", "groups": 4}, IMAGES),
        ({"name": "cnn", "dtype": "float64"}, IMAGES),
        ({"name": "resnet8"}, IMAGES),
        ({"name": "knresnet13"}, IMAGES),
    ],
    ids=lambda given: "-".join(str(value) for value in given.values()) if isinstance(given, dict) else "",
)
def test_classes_and_their_probabilities_are_the_modules_in_onnx_too(
    model: dict[str, Any], schema: TabularSchema | ArraySchema, tmp_path: Path
) -> None:
    path, module = kept(tmp_path, model, schema)
    trained = hanse.load(path)
    shape = (4,) if schema is TABLE else (3, 32, 32)
    x = examples(5, shape)
    expected = torch.softmax(logits(module, x), 1).numpy()
    np.testing.assert_array_equal(trained.predict_proba(x), expected)
    np.testing.assert_array_equal(trained.predict(x), expected.argmax(1))
    np.testing.assert_array_equal(logits(trained.module, x), logits(module, x))
    wanted = "float64" if schema is TABLE and model.get("dtype") == "float64" else "float32"
    left = trained.to_onnx(tmp_path / "out" / "model.onnx")
    for count in (5, 1):
        np.testing.assert_allclose(answered(left, x[:count].astype(wanted)), expected[:count], rtol=0, atol=2e-6)
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["model.onnx"]


def test_a_module_of_ones_own_is_the_models_and_what_is_done_to_it_is_not_done_to_the_model(tmp_path: Path) -> None:
    trained = hanse.load(kept(tmp_path, {"name": "mlp", "hidden": [8]}, TABLE)[0])
    x = examples(5, (4,))
    own, before = trained.to_torch(), trained.predict_proba(x)
    assert not own.training
    np.testing.assert_array_equal(logits(own, x), logits(trained.module, x))
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.zero_()
    assert not torch.equal(logits(own, x), logits(trained.module, x))
    np.testing.assert_array_equal(trained.predict_proba(x), before)


def test_plain_safetensors_and_torch_rebuild_the_model_from_its_file(tmp_path: Path) -> None:
    path, _ = kept(tmp_path, {"name": "mlp", "hidden": [8]}, TABLE)
    trained, x = hanse.load(path), examples(5, (4,))
    arrays = load_file(path)
    assert all(type(array) is np.ndarray for array in arrays.values())
    plain = {name: torch.from_numpy(array) for name, array in arrays.items()}
    fresh = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    fresh.load_state_dict(dict(zip(fresh.state_dict(), (plain[name] for name in _in_order(trained)), strict=True)))
    np.testing.assert_allclose(logits(fresh.eval(), x), logits(trained.module, x), atol=1e-6)
    hidden = np.maximum(x @ arrays[_in_order(trained)[0]].T + arrays[_in_order(trained)[1]], 0)
    told = hidden @ arrays["output.weight"].T + arrays["output.bias"]
    np.testing.assert_allclose(told, logits(trained.module, x), atol=1e-6)


def _in_order(trained: Any) -> list[str]:
    return [name for name, _ in trained.module.named_parameters()]


@pytest.mark.parametrize(
    ("model", "schema", "said"),
    [
        (
            {"name": "mlp"}, TABLE,
            "<hanse trained model triage v1: mlp, classification (3 classes), 4 columns>",
        ),
        ({"name": "linear"}, VALUES, "<hanse trained model triage v1: linear, regression, 4 columns>"),
        (
            {"name": "cnn"}, IMAGES,
            "<hanse trained model triage v1: cnn, classification (10 classes), arrays of shape [3, 32, 32]>",
        ),
    ],
)  # fmt: skip
def test_a_model_prints_as_one_line(model: dict[str, Any], schema: Any, said: str, tmp_path: Path) -> None:
    assert repr(hanse.load(kept(tmp_path, model, schema)[0])) == said


def test_an_onnx_file_says_what_it_is(tmp_path: Path) -> None:
    path, _ = kept(tmp_path, {"name": "logistic"}, TABLE)
    trained = hanse.load(path)
    about = {entry.key: entry.value for entry in onnx.load(trained.to_onnx(tmp_path / "m.onnx")).metadata_props}
    assert json.loads(about.pop("hanse.columns")) == json.loads(about.pop("hanse.features")) == list(AGES)
    record = trained.record
    assert about == {
        "hanse.task": "classification", "hanse.project": "triage", "hanse.run": record.lineage.run,
        "hanse.version": "1", "hanse.digest": record.digest,
    }  # fmt: skip


def test_two_classes_by_one_logit(tmp_path: Path) -> None:
    path, module = kept(tmp_path, {"name": "logistic"}, TWO, loss="binary")
    x = examples(6, (4,))
    trained = hanse.load(path)
    second = torch.sigmoid(logits(module, x)).squeeze(1).numpy()
    np.testing.assert_allclose(trained.predict_proba(x), np.stack([1 - second, second], 1), atol=1e-12)
    np.testing.assert_allclose(answered(trained.to_onnx(tmp_path / "m.onnx"), x)[:, 1], second, atol=1e-6)
    assert trained.classes == 2


def test_a_regressions_values(tmp_path: Path) -> None:
    path, module = kept(tmp_path, {"name": "linear"}, VALUES)
    x = examples(6, (4,))
    trained = hanse.load(path)
    np.testing.assert_array_equal(trained.predict(x), logits(module, x).squeeze(1))
    np.testing.assert_allclose(answered(trained.to_onnx(tmp_path / "m.onnx"), x), trained.predict(x), atol=1e-6)
    with pytest.raises(HanseError, match="classes"):
        trained.predict_proba(x)


def test_a_table_is_read_by_its_columns_names(tmp_path: Path) -> None:
    trained = hanse.load(kept(tmp_path, {"name": "logistic"}, TABLE)[0])
    x = examples(5, (4,))
    frame = pd.DataFrame(x, columns=list(AGES)).assign(name="of no account")[["name", *reversed(AGES)]]
    np.testing.assert_array_equal(trained.predict_proba(frame), trained.predict_proba(x))
    np.testing.assert_array_equal(
        trained.predict_proba({name: x[:, at] for at, name in enumerate(AGES)}), trained.predict_proba(x)
    )
    assert trained.columns == AGES
    assert trained.predict_proba(frame.iloc[:0]).shape == (0, 3)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pd.DataFrame(np.zeros((2, 3)), columns=list(AGES[:3])), "no column height"),
        (pd.DataFrame({name: ["x", "y"] for name in AGES}), "column age"),
        (pd.DataFrame({name: [1.0, np.nan] for name in AGES}), "column age, row 2"),
        (pd.DataFrame(np.zeros((2, 5)), columns=[*AGES, "age"]), "column age"),
        (np.zeros((2, 3)), r"\[2, 3\].*\[n, 4\]"),
        (np.full((2, 4), np.inf), "column age, row 1"),
        ([["a", "b", "c", "d"]], "an array of numbers"),
    ],
)
def test_examples_that_do_not_fit_are_named(data: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(HanseError, match=message):
        hanse.load(kept(tmp_path, {"name": "logistic"}, TABLE)[0]).predict(data)


def test_scikit_learn_takes_the_model_for_a_fitted_classifier(tmp_path: Path) -> None:
    trained = hanse.load(kept(tmp_path, {"name": "logistic"}, TWO)[0])
    x = examples(40, (4,))
    y = (x[:, 0] > 0).astype(int)
    fitted = trained.to_sklearn()
    assert fitted.score(x, y) == float(np.mean(trained.predict(x) == y))
    assert roc_auc_score(y, fitted.predict_proba(x)[:, 1]) == roc_auc_score(y, trained.predict_proba(x)[:, 1])
    with pytest.raises(HanseError, match="at the sites"):
        fitted.fit(x, y)
    values = hanse.load(kept(tmp_path, {"name": "linear"}, VALUES)[0])
    assert values.to_sklearn().predict(x).shape == (40,)


def test_scikit_learns_metrics_take_the_right_class_for_the_positive_one_whatever_the_schemas_order(
    tmp_path: Path,
) -> None:
    """They take the last of the sorted names, and its column for the one whose examples it is of."""
    named = TWO.model_copy(update={"labels": (Label(name="well"), Label(name="dead"))})
    trained = hanse.load(kept(tmp_path, {"name": "logistic"}, named)[0])
    frame = pd.DataFrame(examples(60, (4,), "float64"), columns=list(AGES))
    shares = trained.predict_proba(frame)
    died = shares[:, 1] + np.random.default_rng(3).normal(scale=0.05, size=60) > np.median(shares[:, 1])
    told, fitted = np.where(died, "dead", "well"), trained.to_sklearn()
    assert fitted.classes_.tolist() == ["dead", "well"]
    assert fitted.predict(frame).tolist() == fitted.classes_[fitted.predict_proba(frame).argmax(1)].tolist()
    right = roc_auc_score(died, shares[:, 1])
    assert right > 0.7
    assert get_scorer("roc_auc")(fitted, frame, told) == pytest.approx(right)
    assert get_scorer("neg_log_loss")(fitted, frame, told) == pytest.approx(-log_loss(died, shares[:, 1]))
    calibrated = CalibratedClassifierCV(FrozenEstimator(fitted), cv=2).fit(frame, told)
    assert roc_auc_score(told, calibrated.predict_proba(frame)[:, 1]) == pytest.approx(right, abs=0.05)
    assert fitted.n_features_in_ == len(fitted.feature_names_in_) == 4
    assert partial_dependence(fitted, frame, ["age"], grid_resolution=3)["average"].shape == (1, 3)
    assert not hasattr(hanse.load(kept(tmp_path, {"name": "cnn"}, IMAGES)[0]).to_sklearn(), "feature_names_in_")


def test_a_record_that_does_not_say_what_its_model_is_for_is_told_so(tmp_path: Path) -> None:
    path, _ = kept(tmp_path, {"name": "logistic"}, TABLE, problem=None)
    with pytest.raises(HanseError, match="does not say what the model is for"):
        hanse.load(path)


def test_entries_that_stayed_at_the_sites_are_told(tmp_path: Path) -> None:
    path, module = kept(tmp_path, {"name": "mlp", "normalization": "batch"}, TABLE)
    layout = entries_of(module).travelling
    some = [entry for entry in layout if "running" not in entry.name]
    content = encode_tensors(type(layout)(tuple(some)), {entry.name: arrays_of(module)[entry.name] for entry in some})
    problem = json.loads((tmp_path / "model.safetensors.json").read_bytes())["problem"]
    signed = signed_model(content, problem=problem)
    path.write_bytes(content)
    (tmp_path / "model.safetensors.json").write_bytes(signed.record.canonical())
    with pytest.raises(HanseError, match=r"it has no .*running_mean"):
        hanse.load(path)


def test_a_module_of_an_open_schema_is_there_and_its_task_is_not_known(tmp_path: Path) -> None:
    path, module = kept(tmp_path, {"name": "mlp", "inputs": [4], "outputs": 3}, OpenSchema())
    trained = hanse.load(path)
    np.testing.assert_array_equal(logits(trained.module, examples(3, (4,))), logits(module, examples(3, (4,))))
    with pytest.raises(HanseError, match="which say the task"):
        trained.predict(examples(3, (4,)))


def test_another_file_than_the_records_is_refused(tmp_path: Path) -> None:
    path, _ = kept(tmp_path, {"name": "logistic"}, TABLE)
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(HanseError, match="digest"):
        hanse.load(path)
    with pytest.raises(HanseError, match="another key"):
        hanse.load(path, trusted_key=bytes(32))


def test_without_torch_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = kept(tmp_path, {"name": "logistic"}, TABLE)
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else found(name))
    with pytest.raises(HanseError, match=r"torch: not installed.*hanse\[torch\]"):
        hanse.load(path)


@pytest.mark.parametrize(
    "layer",
    [
        KNConv2d(4, 6, 3, 2, 1, 2, 2, dropout=0.3),
        KNConv2d(4, 6, (2, 3), (1, 2), padding=(0, 1, 1, 0), bias=False),
        KNConv2d(4, 2, 1, 2),
        KernelNorm2d((2, 3), (1, 2), (1, 0), dropout=0.2),
        KernelNorm2d(1),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_plain_layers_are_the_layers_in_evaluation(layer: nn.Module, dtype: torch.dtype) -> None:
    x = torch.from_numpy(examples(3, (4, 7, 8), "float64") * 3 + 5).to(dtype)
    layer = layer.to(dtype).eval()
    close = {torch.float32: 3e-5, torch.float64: 1e-12}[dtype]
    torch.testing.assert_close(plain(nn.Sequential(layer))(x), layer(x), rtol=close, atol=close)


def test_plain_layers_of_one_axis() -> None:
    x = torch.from_numpy(examples(3, (4, 9), "float64"))
    for layer in (KNConv1d(4, 2, 3, 2).double().eval(), KernelNorm1d(3, 2).double().eval()):
        torch.testing.assert_close(plain(layer)(x), layer(x), rtol=1e-12, atol=1e-12)


def test_the_sdks_type_names_what_models_have() -> None:
    from hanse.trained import TrainedModel as Promised

    promised = {name for name in vars(Promised) if not name.startswith("_")} | set(Promised.__annotations__)
    has = {name for name in dir(TrainedModel) if not name.startswith("_")} | set(TrainedModel.__annotations__)
    assert promised <= has
