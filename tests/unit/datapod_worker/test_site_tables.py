"""A site's raw table: missing cells and categories are read as they are, and each fault is told by its place alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hanse_datapod.data.load import read_site_data, read_site_tables
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.worker.server.training import TrainingServer, _people
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import TaskKind
from hanse_privacy.works.people import sketches
from hanse_schemas.job import check_job
from hanse_schemas.prepare import Prepare, completed_job
from hanse_schemas.schema import Column, TabularSchema

SCHEMA = TabularSchema(
    features=(
        Column(name="age", minimum=0, maximum=120), Column(name="beds", dtype="integer"),
        Column(name="ward", kind="category", values=("a", "b")), Column(name="seen", kind="date"),
    ),
    target="ill", classes=2,
)  # fmt: skip
NUMBERS = SCHEMA.model_copy(update={"features": SCHEMA.features[:2]})
GOOD = "age,beds,ward,seen,ill\n40,1,a,2026-01-01,0\n,2,b,,1\n60,,,2026-01-03,0\n70,4,01,2026-01-04,1\n"


def csv(folder: Path, text: str) -> DataSettings:
    path = folder / "ward.csv"
    path.write_text(text)
    return DataSettings(train=path, test_fraction=0)


def test_csv_and_parquet_of_the_same_table_are_the_same_cells(tmp_path: Path) -> None:
    one = read_site_tables(csv(tmp_path, GOOD), SCHEMA)
    pd.read_csv(tmp_path / "ward.csv", dtype={"ward": str}).to_parquet(tmp_path / "ward.parquet")
    two = read_site_tables(DataSettings(train=tmp_path / "ward.parquet", test_fraction=0), SCHEMA)
    assert one.fingerprint() == two.fingerprint()
    assert one.train.columns["ward"].tolist() == ["a", "b", None, "01"]
    assert one.train.examples.y.tolist() == [0, 1, 0, 1]
    np.testing.assert_array_equal(one.train.columns["age"], [40, np.nan, 60, 70])


def test_the_same_rows_are_set_aside_as_without_a_preparation(tmp_path: Path) -> None:
    rows = "".join(f"{at},{at},{at % 2}\n" for at in range(20))
    settings = csv(tmp_path, f"age,beds,ill\n{rows}").model_copy(update={"test_fraction": 0.25})
    raw, plain = read_site_tables(settings, NUMBERS), read_site_data(settings, NUMBERS)
    assert raw.test is not None
    assert plain.test is not None
    assert raw.test.columns["age"].tolist() == plain.test.x[:, 0].tolist()
    assert raw.train.columns["age"].tolist() == plain.train.x[:, 0].tolist()


@pytest.mark.parametrize("whose", [{}, {"unit": "who", "weight": "counts"}], ids=["rows", "units with weights"])
@pytest.mark.parametrize("task", [{"classes": 2}, {"task": "regression"}], ids=["classes", "values"])
def test_people_are_the_same_in_a_raw_table_and_in_one_that_is_trained_on_as_it_is(
    tmp_path: Path, whose: dict[str, Any], task: dict[str, Any]
) -> None:
    features = Column(name="beds"), Column(name="age")  # neither sorted, nor as they stand in the file
    schema = TabularSchema.model_validate({"features": features, "target": "ill"} | whose | task)
    rows = "".join(f"{40.1 + at},{at / 3},{at % 2},p{at % 7},{1 + at % 3}\n" for at in range(40))
    settings = csv(tmp_path, f"age,beds,ill,who,counts\n{rows}").model_copy(update={"test_fraction": 0.25})
    data = read_site_data(settings, schema)
    assert data.test is not None
    raw = sketches(map(_people, (data.train, data.test)))
    assert read_site_tables(settings, schema).fingerprint_and_people()[1] == raw


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ("130,2,a,2026-01-01,0", "column age, line 3: at most 120 was expected"),
        ("40,2.5,a,2026-01-01,0", "column beds, line 3: a whole number was expected"),
        ("old,2,a,2026-01-01,0", "column age, line 3: a finite number below 1e20 was expected"),
        ("40,2,a,1.3.26,0", "column seen, line 3: a date such as 2026-03-31, 31.3.2026 or 3/31/2026"),
        ("40,2,a,2026-01-01,", "column ill, line 3: a finite number was expected"),
    ],
)
def test_a_fault_is_told_by_its_line_and_its_cell_stays_at_the_site(tmp_path: Path, cell: str, told: str) -> None:
    lines = GOOD.splitlines()
    with pytest.raises(HanseError, match=told) as raised:
        read_site_tables(csv(tmp_path, "\n".join([*lines[:2], cell, *lines[3:]])), SCHEMA)
    assert raised.value.code is ErrorCode.SCHEMA_MISMATCH
    assert not any(part in str(raised.value) for part in ("130 ", "2.5", "old", "1.3.26"))


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(HanseError, match=r"data file ward\.csv: column seen is missing"):
        read_site_tables(csv(tmp_path, "age,beds,ward,ill\n1,1,a,0\n"), SCHEMA)


def test_a_table_with_missing_cells_is_fit_and_a_job_without_preparation_is_refused(tmp_path: Path) -> None:
    data = csv(tmp_path, "age,beds,ill\n40,1,0\n,2,1\n60,3,1\n")
    server = TrainingServer(lambda _frame: None, dict)
    asked: dict[str, Any] = {
        "data": data.model_dump(mode="json"), "schema": NUMBERS.model_dump(mode="json"), "code": None, "device": "cpu",
        "operation": "check",
    }  # fmt: skip
    assert server.do(asked)["examples"] == 3
    job = completed_job(check_job({"rounds": 1, "model": {"name": "logistic"}}), NUMBERS)
    assert isinstance(job.prepare, Prepare)
    work = asked | {
        "operation": "work", "kind": TaskKind.PREPARE.value, "config": {"prepare": list(job.prepare.columns)},
        "seed": 0, "round": 0, "model": None, "output": str(tmp_path / "update"), "state": str(tmp_path), "extras": {},
        "trained": None, "exchange": False, "wanted": None,
    }  # fmt: skip
    assert server.do(work)["examples"] == 3
    initialize = {"kind": TaskKind.INITIALIZE.value, "config": {"model": job.model, "train": {}}}
    server.do(work | initialize)
    (tmp_path / "update").rename(tmp_path / "model")
    training = {"kind": TaskKind.TRAIN.value, "config": {"model": job.model, "train": {}}, "model": tmp_path / "model"}
    with pytest.raises(HanseError, match="column age, line 3: a finite number was expected"):
        server.do(work | training)


def test_cells_of_another_kind_are_unfit_when_the_data_are_looked_at(tmp_path: Path) -> None:
    server = TrainingServer(lambda _frame: None, dict)
    data = csv(tmp_path, GOOD.replace("2026-01-03", "yesterday"))
    with pytest.raises(HanseError, match="column seen, line 4"):
        server.do({
            "data": data.model_dump(mode="json"), "schema": SCHEMA.model_dump(mode="json"), "code": None,
            "device": "cpu", "operation": "check",
        })  # fmt: skip
