"""The ONNX file of a model of raw columns takes raw columns: onnxruntime alone gives what sites' preparation and torch
give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest

import hanse
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_learning.portable import onnx_file, onnx_preparation
from hanse_schemas.preparation import Preparation
from hanse_schemas.schema import Column, TabularSchema
from onnx_sessions import onnx_session
from unit.learning_site.test_portable_models import kept

PREPARATION = Preparation.model_validate({"columns": [
    {"kind": "number", "name": "age", "fill": 61.25, "indicator": True, "centre": 60.5, "scale": 15.125},
    {"kind": "number", "name": "creatinine", "log": True, "fill": 4.5, "centre": 4.4, "scale": 0.4},
    {"kind": "number", "name": "probabilities", "centre": 1.0, "scale": 3.0},
    {"kind": "boolean", "name": "smoker", "fill": 0.0},
    {"kind": "date", "name": "features", "fill": 20000.0, "centre": 20100.0, "scale": 30.0},
    {"kind": "category", "name": "ward", "form": "onehot", "values": ["a", "missing", "ü"], "unknown": "other",
     "missing": "own"},
    {"kind": "category", "name": "grade", "form": "ordinal", "values": ["low", "high"]},
    {"kind": "category", "name": "code", "form": "hashed", "buckets": 8, "missing": "own"},
    {"kind": "category", "name": "sex", "form": "onehot", "values": ["f", "m"], "unknown": "refuse",
     "missing": "refuse"},
    {"kind": "text", "name": "note"},
]})  # fmt: skip
COLUMNS = tuple(Column(name=column.name, kind=column.kind) for column in PREPARATION.columns)
SCHEMA = TabularSchema(features=COLUMNS, target="ill", classes=2)
ROWS = pd.DataFrame({
    "age": [40.0, np.nan, 1e9, -3.5], "creatinine": [80.0, 0.0, np.nan, -1e-9], "probabilities": [1.0, 2.0, 3.0, 4.0],
    "smoker": ["yes", None, "no", "1"], "features": ["2026-01-13", None, "31.1.2026", "1/31/2026 12:00"],
    "ward": ["a", "missing", None, "else"], "grade": ["high", "low", None, "else"], "code": ["I63", None, "x", "I63"],
    "sex": ["f", "m", "f", "m"],
})  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("schema", [SCHEMA, SCHEMA.model_copy(update={"task": "regression", "classes": None})])
def test_raw_columns_of_each_kind_are_prepared_in_the_graph(tmp_path: Path, schema: TabularSchema, dtype: str) -> None:
    path, _ = kept(tmp_path, {"name": "mlp", "hidden": [6], "dtype": dtype}, schema, preparation=PREPARATION)
    model = hanse.load(path)
    session = onnx_session(model.to_onnx(tmp_path / "m.onnx"))
    taken = {each.name: each.type for each in session.get_inputs()}
    assert taken == {
        "age": "tensor(double)", "creatinine": "tensor(double)", "probabilities (column)": "tensor(double)",
        "smoker": "tensor(double)", "features": "tensor(double)", "ward": "tensor(string)", "grade": "tensor(string)",
        "code": "tensor(int64)", "sex": "tensor(string)",
    }  # fmt: skip
    inputs = model.inputs(ROWS)
    assert inputs["ward"].tolist() == ["a", "missing", "", "else"]
    assert inputs["features"].tolist()[2:] == [20484.0, 20484.5]
    for rows in (slice(None), slice(0, 1)):
        [given] = session.run(None, {name: values[rows] for name, values in inputs.items()})
        expected = model.predict_proba(ROWS[rows]) if schema.task == "classification" else model.predict(ROWS[rows])
        np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-6)
    about = {entry.key: entry.value for entry in onnx.load(tmp_path / "m.onnx").metadata_props}
    assert json.loads(about["hanse.columns"]) == [column.name for column in COLUMNS]
    assert json.loads(about["hanse.features"]) == list(PREPARATION.outputs)


@pytest.mark.parametrize(("column", "cell"), [("sex", ""), ("sex", "x"), ("probabilities (column)", np.nan)])
def test_a_cell_that_the_preparation_refuses_gives_no_number(tmp_path: Path, column: str, cell: Any) -> None:
    path, _ = kept(tmp_path, {"name": "logistic"}, SCHEMA, preparation=PREPARATION)
    model = hanse.load(path)
    session = onnx_session(model.to_onnx(tmp_path / "m.onnx"))
    inputs = model.inputs(ROWS)
    inputs[column][1] = cell
    [given] = session.run(None, inputs)
    assert np.isnan(given[1]).all()
    assert not np.isnan(given[[0, 2, 3]]).any()


def test_a_graph_that_prepares_in_another_way_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = kept(tmp_path, {"name": "logistic"}, SCHEMA, preparation=PREPARATION)
    put_before = onnx_preparation.put_before

    def otherwise(made: Any, preparation: Preparation, taken: Any) -> None:
        age, *rest = preparation.columns
        put_before(
            made, preparation.model_copy(update={"columns": (age.model_copy(update={"fill": 0.0}), *rest)}), taken
        )

    monkeypatch.setattr(onnx_preparation, "put_before", otherwise)
    with pytest.raises(HanseError, match="other numbers than torch") as raised:
        hanse.load(path).to_onnx(tmp_path / "m.onnx")
    assert raised.value.code is ErrorCode.INTERNAL
    assert not list(tmp_path.glob("m.onnx*"))


def test_a_model_without_a_preparation_takes_features(tmp_path: Path) -> None:
    schema = TabularSchema(features=(Column(name="x"), Column(name="y")), target="ill", classes=2)
    model = hanse.load(kept(tmp_path, {"name": "logistic"}, schema)[0])
    frame = pd.DataFrame({"y": [1.0, 2.0], "x": [3.0, 4.0]})
    assert model.inputs(frame)[onnx_file.FEATURES].tolist() == [[3.0, 1.0], [4.0, 2.0]]


def test_inputs_of_an_array_are_refused_where_columns_are_prepared(tmp_path: Path) -> None:
    path, _ = kept(tmp_path, {"name": "logistic"}, SCHEMA, preparation=PREPARATION)
    with pytest.raises(HanseError, match="a table of the raw columns"):
        hanse.load(path).inputs(np.zeros((2, 9)))


@pytest.mark.parametrize("data", [np.zeros((2, 23)), np.zeros((2, 9)), ROWS.to_numpy(), [[1.0] * 23]])
def test_an_array_is_not_taken_for_prepared_features_nor_for_raw_columns(tmp_path: Path, data: Any) -> None:
    """Of numbers without a missing cell there are as many of both, and what came of it was wrong without a word."""
    path, _ = kept(tmp_path, {"name": "logistic"}, SCHEMA, preparation=PREPARATION)
    with pytest.raises(HanseError, match="a table of the raw columns was expected") as raised:
        hanse.load(path).predict(data)
    assert "model.to_torch()" in raised.value.hint


def test_a_column_that_is_there_twice_is_named(tmp_path: Path) -> None:
    path, _ = kept(tmp_path, {"name": "logistic"}, SCHEMA, preparation=PREPARATION)
    with pytest.raises(HanseError, match="column age is there more than once"):
        hanse.load(path).predict(pd.concat([ROWS, ROWS[["age"]]], axis=1))


@pytest.mark.parametrize("place", ["folder", "file/m.onnx"])
def test_a_place_where_nothing_can_be_written_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    path, _ = kept(tmp_path, {"name": "logistic"}, SCHEMA, preparation=PREPARATION)
    with pytest.raises(HanseError, match=place) as raised:
        hanse.load(path).to_onnx(tmp_path / place)
    assert raised.value.code is ErrorCode.INVALID_INPUT
    assert not list(tmp_path.glob("**/*.unverified"))


def test_a_cell_of_ones_own_table_that_does_not_fit_is_named_without_a_site(tmp_path: Path) -> None:
    path, _ = kept(tmp_path, {"name": "logistic"}, SCHEMA, preparation=PREPARATION)
    with pytest.raises(HanseError, match="column age, row 2: a finite number below 1e20 was expected") as raised:
        hanse.load(path).predict(ROWS.assign(age=["40", "old", "", "1"]))
    assert raised.value.hint == "correct the table, or leave the cell empty"
    assert "old" in raised.value.whole
