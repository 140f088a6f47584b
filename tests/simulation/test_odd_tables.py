"""Whole runs of deployed sites over tables that are odd: what three hospitals of their own make of a column that one of
them lacks, of a class that nobody has, of three ways to write a date, and what people are told in each case."""

from __future__ import annotations

import csv
import datetime as dt
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits

from clocks import in_virtual_time
from hanse.jobs import read_job
from hanse_coordinator.records import RunRecord
from hanse_datapod.data.load import read_site_tables
from hanse_fabric.messages import Task, TaskKind
from hanse_fabric.subjects import TASK
from hanse_fabric.virtual_time import VirtualClock
from hanse_schemas.preparation import Preparation, PreparedNumber
from hanse_schemas.prepare import completed_job
from hanse_schemas.schema import Column, TabularSchema
from hanse_workflows.memory import conduct
from simulation.league import League
from simulation.stories import ended, hub_of
from simulation.wards import SCHEMA, WARDS, Wards, ward_job

Row = dict[str, str]
Change = Callable[[int, Row], Row]
SLOW = {"epochs": 1, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 0.05}}


def changed(wards: Wards, change: Change, *names: str) -> Wards:
    """The wards whose rows at these sites, or at all, are others."""
    for name in names or WARDS:
        with wards.files[name].open(newline="") as file:
            rows = [change(at, row) for at, row in enumerate(csv.DictReader(file))]
        with wards.files[name].open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    return wards


def body(mode: str | None = None, **changes: Any) -> dict[str, Any]:
    return read_job(ward_job(mode, **changes))


def warnings(made: League) -> list[str]:
    return [event.data["warning"] for event in made.events("note") if event.data.get("warning")]


def preparation(made: League) -> Preparation:
    tasks = [task for task in made.published(TASK, Task) if task.kind is TaskKind.TRAIN]
    (found,) = {Preparation.model_validate(task.config["preparation"]) for task in tasks}
    return found


async def run_of(
    clock: VirtualClock, folder: Path, wards: Wards, job: dict[str, Any], rules: dict[str, Any] | None = None
) -> tuple[League, RunRecord, dict[str, np.ndarray]]:
    """A run over the wards' true sites that has ended, and its model."""
    with threadpool_limits(1):
        async with hub_of(clock, folder, *WARDS, worker=wards.worker, schema=wards.schema, rules=rules) as made:
            record = await ended(made, job)
            return made, record, await made.model() if record.state == "completed" else {}


def oddities(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What sites' administrators read in their logs."""
    return [each.__dict__["what"] for each in caplog.records if each.message == "the data are as declared, but odd"]


@pytest.mark.parametrize("mode", [None, "compensator"])
@in_virtual_time
async def test_a_class_that_one_site_lacks_is_in_the_pooled_metrics_and_in_none_of_its_own(
    clock: VirtualClock, tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: str | None
) -> None:
    wards = changed(Wards.written(tmp_path), lambda _, row: row | {"died": "0"}, "north")
    job = body(mode, rounds=4, evaluate={"metrics": ["auroc", "sensitivity", "f1"]})
    with caplog.at_level(logging.WARNING):
        made, record, model = await run_of(clock, tmp_path / "hub", wards, job)
    assert (record.state, record.reason) == ("completed", "")
    tests = [table for name in WARDS if (table := read_site_tables(wards.settings(name), SCHEMA).test) is not None]
    y = np.concatenate([table.prepared(preparation(made)).y for table in tests])
    x = np.concatenate([table.prepared(preparation(made)).x for table in tests]).astype(np.float64)
    odds = x @ (model["output.weight"][1] - model["output.weight"][0]).astype(np.float64)
    assert record.metrics["auroc"] == pytest.approx(roc_auc_score(y, odds), abs=1e-4)
    assert all(np.isfinite(value) for value in record.metrics.values())
    last = made.events("round-finished")[-1].data
    if mode is None:
        assert "auroc" not in last["sites"]["north"]
        assert "auroc" in last["sites"]["south"]
    assert oddities(caplog) == ["column lactate has no cell", "no row is of class 1"]


@in_virtual_time
async def test_a_class_that_no_site_has_leaves_metrics_out_and_says_why(clock: VirtualClock, tmp_path: Path) -> None:
    wards = changed(Wards.written(tmp_path), lambda _, row: row | {"died": "0"})
    made, record, _ = await run_of(clock, tmp_path / "hub", wards, body(evaluate={"metrics": ["auroc", "f1"]}))
    assert record.state == "completed"
    assert "auroc" not in record.metrics
    why = made.events("round-finished")[-1].data["undefined"]
    assert "class" in why["auroc"]


@pytest.mark.parametrize("mode", [None, "compensator"])
@in_virtual_time
async def test_columns_that_tell_nothing_anywhere_are_warned_of_by_name(
    clock: VirtualClock, tmp_path: Path, mode: str | None
) -> None:
    wards = changed(Wards.written(tmp_path), lambda _, row: row | {"lactate": "", "creatinine": "81.3"})
    made, record, model = await run_of(clock, tmp_path / "hub", wards, body(mode))
    assert record.state == "completed"
    assert warnings(made)[:1] == [
        "no site has a cell of column lactate; all cells are the same, at all sites, of column creatinine"
    ]
    assert all(np.isfinite(entry).all() for entry in model.values())


@in_virtual_time
async def test_control_of_columns_that_one_site_alone_lacks_nothing_is_warned(
    clock: VirtualClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wards = changed(Wards.written(tmp_path), lambda _, row: row | {"creatinine": "81.3"}, "south")
    with caplog.at_level(logging.WARNING):
        made, record, _ = await run_of(clock, tmp_path / "hub", wards, body("compensator"))
    assert (record.state, warnings(made)) == ("completed", [])
    assert sorted(oddities(caplog)) == ["all cells of column creatinine are the same", "column lactate has no cell"]


@in_virtual_time
async def test_a_category_that_one_site_alone_has_is_a_feature_at_all_and_one_that_the_schema_does_not_name_is_refused(
    clock: VirtualClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wards = Wards.written(tmp_path)  # burns are the last site's alone
    made, _, model = await run_of(clock, tmp_path / "hub", wards, body())
    assert "ward=burns" in preparation(made).outputs
    assert model["output.weight"].shape[1] == len(preparation(made).outputs)
    changed(wards, lambda _, row: row | {"ward": row["ward"].upper()}, "east")
    refusing = body(prepare={"columns": [{"name": "ward", "unknown": "refuse"}]})
    with caplog.at_level(logging.WARNING):
        _, record, _ = await run_of(clock, tmp_path / "other", wards, refusing)
    assert record.state == "failed"
    assert "east" in record.reason
    assert "column ward: a value is none of the schema's, which prepare refuses" in record.reason
    assert "GENERAL" not in record.reason
    assert "no cell of column ward is one of the values that the project's schema names" in oddities(caplog)


DATED = TabularSchema(
    features=(Column(name="age", minimum=0, maximum=120), Column(name="creatinine"), Column(name="seen", kind="date")),
    target="died", classes=2,
)  # fmt: skip


def with_dates(folder: Path) -> Wards:
    """Three wards with a day for each patient, in one form."""
    folder.mkdir()
    plain = Wards.written(folder)
    day = dt.date(2026, 1, 1)
    dated = changed(plain, lambda at, row: row | {"seen": str(day + dt.timedelta(days=5 * at))})
    return Wards(dated.files, schema=DATED)


def in_form(form: str) -> Change:
    """Dates as another program writes them."""
    return lambda _, row: row | {"seen": dt.date.fromisoformat(row["seen"]).strftime(form)}


@pytest.mark.parametrize("mode", [None, "compensator"])
@in_virtual_time
async def test_dates_in_three_formats_decimal_commas_and_semicolons_are_the_same_run(
    clock: VirtualClock, tmp_path: Path, mode: str | None
) -> None:
    plain, foreign = with_dates(tmp_path / "plain"), with_dates(tmp_path / "foreign")
    forms = dict(zip(WARDS, ("%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y"), strict=True))
    for name, form in forms.items():
        changed(foreign, in_form(form), name)
    german = foreign.files["north"]
    rows = list(csv.reader(german.read_text().splitlines()))
    lines = [";".join(cell.replace(".", ",") if at < 3 else cell for at, cell in enumerate(row)) for row in rows]
    german.write_text("\n".join(lines) + "\n", encoding="utf-8-sig")
    assert re.search(r"\d,\d+;", german.read_text())
    job = completed_job(ward_job(mode).model_copy(update={"prepare": None}), DATED)
    sent = read_job(job)
    runs = [await run_of(clock, tmp_path / f"hub-{at}", wards, sent) for at, wards in enumerate((plain, foreign))]
    assert [record.state for _, record, _ in runs] == ["completed"] * 2
    assert preparation(runs[0][0]) == preparation(runs[1][0])
    assert runs[0][1].model_digest == runs[1][1].model_digest
    seen = preparation(runs[0][0]).columns[2]
    assert isinstance(seen, PreparedNumber)
    assert seen.scale > 50  # days


@in_virtual_time
async def test_a_date_that_may_be_read_in_two_ways_is_refused_and_says_what_to_write(
    clock: VirtualClock, tmp_path: Path
) -> None:
    wards = changed(with_dates(tmp_path / "wards"), lambda at, row: row | {"seen": f"{1 + at % 9}/2/2026"}, "south")
    job = completed_job(ward_job(None).model_copy(update={"prepare": None}), DATED)
    _, record, _ = await run_of(clock, tmp_path / "hub", wards, read_job(job))
    assert record.state == "failed"
    assert "south" in record.reason
    assert "column seen, line 2: a date such as 2026-03-31, 31.3.2026 or 3/31/2026" in record.reason
    assert "the schema must say formats" in record.reason


@in_virtual_time
async def test_a_run_that_stops_by_its_loss_says_so_in_its_record_and_keeps_the_best(
    clock: VirtualClock, tmp_path: Path
) -> None:
    stop = {"metric": "loss", "patience": 2, "min_delta": 0.02}
    made, record, _ = await run_of(
        clock, tmp_path / "hub", Wards.written(tmp_path), body(rounds=40, train=SLOW, stop=stop, keep="best")
    )
    assert record.state == "completed"
    losses = {event.round: event.data["metrics"]["loss"] for event in made.events("round-finished")}
    assert record.round < 40
    assert record.reason.startswith(f"stopped after round {record.round} of 40: loss has not improved on ")
    assert record.reason.endswith(" for 2 evaluations")
    (best,) = [version for version in await made.versions() if version.version == record.best_version]
    assert best.metrics["loss"] == losses[best.lineage.round]


@in_virtual_time
async def test_a_run_that_diverges_ends_and_names_the_sites(clock: VirtualClock, tmp_path: Path) -> None:
    train = {"epochs": 5, "batch_size": 1, "optimizer": {"name": "sgd", "lr": 1e6, "momentum": 0.99}}
    job = body(rounds=3, train=train, model={"name": "mlp", "hidden": [8, 8, 8, 8]})
    _, record, _ = await run_of(clock, tmp_path / "hub", Wards.written(tmp_path), job)
    assert record.state == "failed"
    assert all(name in record.reason for name in WARDS)
    assert "training diverged: the loss is" in record.reason
    assert "lower train.optimizer.lr" in record.reason


@in_virtual_time
async def test_a_batch_larger_than_any_table_is_all_rows_of_each(clock: VirtualClock, tmp_path: Path) -> None:
    wards = Wards.written(tmp_path)
    huge = body(train={"epochs": 2, "batch_size": 1 << 24})
    _, record, model = await run_of(clock, tmp_path / "hub", wards, huge)
    assert record.state == "completed"
    whole = ward_job(None, train={"epochs": 2, "batch_size": "all"})
    with threadpool_limits(1):
        expected = conduct(whole, wards.in_memory(tmp_path / "memory"), schema=SCHEMA)
    assert record.model_digest == expected.digest
    assert model
