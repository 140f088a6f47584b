"""`hanse model export` and `hanse model predict`: a downloaded model, a file of rows, and no hub."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hanse
from hanse.cli import main
from hanse_schemas.schema import ArraySchema, Label
from onnx_sessions import onnx_session
from unit.learning_site.test_portable_models import AGES, TABLE, VALUES, examples, kept

Run = Callable[..., int]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """The command in a folder of its own, without a hub; gives its exit status."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["hanse", "model", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    return run


def test_rows_of_a_file_get_what_the_model_says_of_them(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = kept(tmp_path, {"name": "logistic"}, TABLE)
    x = examples(7, (4,))
    frame = pd.DataFrame(x, columns=list(AGES)).assign(name=[f"row {number}" for number in range(7)])
    frame.to_csv("rows.csv", index=False)
    assert run("predict", path, "rows.csv", "told.csv") == 0
    told = pd.read_csv("told.csv")
    shares = hanse.load(path).predict_proba(pd.read_csv("rows.csv"))
    assert list(told.columns) == [*AGES, "name", "prediction", "probability_0", "probability_1", "probability_2"]
    assert list(told["name"]) == list(frame["name"])
    np.testing.assert_array_equal(told["prediction"], shares.argmax(1))
    np.testing.assert_allclose(told[[f"probability_{label}" for label in range(3)]], shares, atol=1e-15)
    assert {file.name for file in tmp_path.glob("*.csv*")} == {"rows.csv", "told.csv"}
    capsys.readouterr()
    assert run("predict", path, "rows.csv", "again.csv", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["path"], found["rows"]) == ("again.csv", 7)


def test_a_file_with_semicolons_and_decimal_commas_gets_the_same_predictions(run: Run, tmp_path: Path) -> None:
    path, _ = kept(tmp_path, {"name": "logistic"}, TABLE)
    frame = pd.DataFrame(examples(5, (4,)), columns=list(AGES))
    frame.to_csv("rows.csv", index=False)
    frame.to_csv("rows-de.csv", index=False, sep=";", decimal=",", encoding="utf-8-sig")
    assert run("predict", path, "rows.csv", "told.csv") == run("predict", path, "rows-de.csv", "told-de.csv") == 0
    pd.testing.assert_frame_equal(pd.read_csv("told.csv"), pd.read_csv("told-de.csv"))


def test_a_file_of_another_encoding_is_read_where_it_is_said(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = kept(tmp_path, {"name": "logistic"}, TABLE)
    frame = pd.DataFrame(examples(5, (4,)), columns=list(AGES)).assign(ward="Hüfte")
    frame.to_csv("rows.csv", index=False, encoding="cp1252")
    assert run("predict", path, "rows.csv", "told.csv") != 0
    assert "its text is not utf-8" in " ".join(capsys.readouterr().err.split())
    assert run("predict", path, "rows.csv", "told.csv", "--encoding", "cp1252") == 0
    assert set(pd.read_csv("told.csv")["ward"]) == {"Hüfte"}


def test_classes_that_have_names_are_told_by_them(run: Run, tmp_path: Path) -> None:
    names = ("well", "stroke", "other")
    named = TABLE.model_copy(update={"labels": tuple(Label(name=name) for name in names)})
    path, _ = kept(tmp_path, {"name": "logistic"}, named)
    frame = pd.DataFrame(examples(40, (4,)), columns=list(AGES))
    frame.to_csv("rows.csv", index=False)
    assert run("predict", path, "rows.csv", "told.csv") == 0
    told, model = pd.read_csv("told.csv"), hanse.load(path)
    assert list(told.columns[-3:]) == [f"probability_{name}" for name in names]
    shares = model.predict_proba(frame)
    assert list(told["prediction"]) == list(model.predict(frame)) == [names[at] for at in shares.argmax(1)]
    estimator = model.to_sklearn()
    assert list(estimator.classes_) == sorted(names)
    assert 0 < estimator.score(frame, ["well"] * 40) < 1


def test_a_regressions_rows_get_one_number(run: Run, tmp_path: Path) -> None:
    path, _ = kept(tmp_path, {"name": "linear"}, VALUES)
    pd.DataFrame(examples(3, (4,)), columns=list(AGES)).to_csv("rows.csv", index=False)
    assert run("predict", path, "rows.csv", "told.csv") == 0
    assert list(pd.read_csv("told.csv").columns) == [*AGES, "prediction"]


def test_an_export_is_written_beside_nothing_else(run: Run, tmp_path: Path) -> None:
    path, _ = kept(tmp_path, {"name": "logistic"}, TABLE)
    assert run("export", path, "out.onnx") == 0
    x = examples(4, (4,))
    [given] = onnx_session("out.onnx").run(None, {"features": x})
    np.testing.assert_allclose(given, hanse.load(path).predict_proba(x), atol=1e-6)


@pytest.mark.parametrize(
    ("rows", "output", "message"),
    [
        (None, "told.csv", "rows.csv: there is no such file"),
        ("", "told.csv", "rows.csv: it is not CSV"),
        ("age,pulse\n1,2\n", "told.csv", "no column weight, height"),
        ("age,pulse,weight,height,prediction\n1,2,3,4,5\n", "told.csv", "column prediction"),
        ("age,pulse,weight,height\n1,2,3,\n", "told.csv", "column height, row 1"),
        ("age,pulse,weight,height\n1,2,3,4\n", "absent/told.csv", "absent/told.csv: it cannot be written"),
    ],
)
def test_what_is_wrong_with_the_files_is_said_and_nothing_is_written(
    rows: str | None, output: str, message: str, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = kept(tmp_path, {"name": "logistic"}, TABLE)
    if rows is not None:
        Path("rows.csv").write_text(rows)
    assert run("predict", path, "rows.csv", output) != 0
    assert message in " ".join(capsys.readouterr().err.split())
    assert not Path(output).exists()


def test_a_parquet_file_gets_the_predictions_of_the_same_csv(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = kept(tmp_path, {"name": "logistic"}, TABLE)
    frame = pd.DataFrame(examples(5, (4,)), columns=list(AGES))
    frame.to_csv("rows.csv", index=False)
    frame.to_parquet("rows.parquet")
    assert run("predict", path, "rows.csv", "told.csv") == run("predict", path, "rows.parquet", "same.csv") == 0
    pd.testing.assert_frame_equal(pd.read_csv("told.csv"), pd.read_csv("same.csv"))
    damaged = bytearray(Path("rows.parquet").read_bytes())
    damaged[10:60] = b"\xff" * 50
    for content in (b"x" * 50, damaged):
        Path("rows.parquet").write_bytes(content)
        assert run("predict", path, "rows.parquet", "none.csv") != 0
        assert "rows.parquet: it is not Parquet" in " ".join(capsys.readouterr().err.split())


def test_a_model_of_arrays_takes_the_files_of_arrays_that_sites_have(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = kept(tmp_path, {"name": "logistic"}, ArraySchema(shape=(4,), classes=3))
    x = examples(6, (4,))
    np.savez("rows.npz", x=x, y=np.zeros(6))
    assert run("predict", path, "rows.npz", "told.csv") == 0
    told, shares = pd.read_csv("told.csv"), hanse.load(path).predict_proba(x)
    assert list(told.columns) == ["prediction", "probability_0", "probability_1", "probability_2"]
    np.testing.assert_array_equal(told["prediction"], shares.argmax(1))
    Path("rows.csv").write_text("age\n1\n")
    np.savez("other.npz", y=x)
    np.savez("objects.npz", x=np.array([{}], dtype=object))
    Path("broken.npz").write_bytes(b"PK")
    np.save("one.npy", x)
    Path("one.npy").rename("one.npz")
    for name, message in {
        "rows.csv": "an NPZ file with an array x", "other.npz": "its arrays are y, and x is not among them",
        "objects.npz": "not an NPZ file of plain arrays", "broken.npz": "not an NPZ file of plain arrays",
        "one.npz": "an array without a name",
        "none.npz": "there is no such file",
    }.items():  # fmt: skip
        assert run("predict", path, name, "said.csv") != 0
        assert message in " ".join(capsys.readouterr().err.split())
        assert not Path("said.csv").exists()
