"""An owner who asks the preparation of raw tables about one person, with an honest hub and masked sums.

`rare` hides values that fewer rows have than it says. Whoever submits one job after the other with another `rare` has
the exact number of rows with a value, of which one is a person's: of that one value, over all sites. And the mean of a
column of which one person alone has a cell is that cell.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import threadpool_limits

from adversary.in_memory import tmp_path
from clocks import in_virtual_time
from csv_tables import write_table
from hanse_coordinator.api.submission import closed_protocols
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.policy.limits import AskingPolicy
from hanse_datapod.worker.client.process_worker import ProcessWorker
from hanse_fabric.clock import Clock
from hanse_fabric.messages import HiddenFailure, Presence, Task, TaskKind
from hanse_fabric.subjects import PRESENCE, TASK
from hanse_fabric.virtual_time import VirtualClock
from hanse_schemas.job import Job, check_job
from hanse_schemas.preparation import Preparation, PreparedNumber
from hanse_schemas.prepare import completed_job
from hanse_schemas.schema import Column, TabularSchema
from simulation.in_threads import ThreadedProcess
from simulation.league import League
from simulation.stories import hub_of

__all__ = ["tmp_path"]
WARDS, TARGET = ("east", "north", "south"), "south"
SCHEMA = TabularSchema(
    features=(
        Column(name="age", minimum=0, maximum=120),
        Column(name="lactate"),
        Column(name="ward", kind="category", values=("burns", "general", "stroke")),
    ),
    target="died", classes=2,
)  # fmt: skip
LACTATE = 7.31
"""Of one person of the target's, and of nobody else."""
CAUTIOUS: dict[str, Any] = {"masking": {"required": True}}
COUNTED = 8
"""The owner looks for a number of rows below it."""


def written(folder: Path, *, burnt: bool, lactates: int = 0) -> dict[str, Path]:
    """The wards' tables: with one patient of the target's in the ward `burns`, and with so many of its lactates."""
    files = {}
    for name in WARDS:
        rows = []
        for at in range(24):
            person = burnt and name == TARGET and at == 3
            lactate = LACTATE if name == TARGET and at < lactates else ""
            rows.append([40 + at, lactate, "burns" if person else ("general", "stroke")[at % 2], at % 2])
        columns = [*(column.name for column in SCHEMA.features), SCHEMA.target]
        files[name] = write_table(folder / f"{name}.csv", columns, rows)
    return files


def job(run: int, **prepare: Any) -> Job:
    body: dict[str, Any] = {
        "rounds": 1, "model": {"name": "logistic"}, "train": {"steps": 1}, "evaluate": {"every": 0}, "seed": run,
        "participants": {"minimum": 3, "deadline": 30.0, "patience": 30.0}, "prepare": prepare,
        "secure_aggregation": {"mode": "pairwise"},
    }  # fmt: skip
    return completed_job(check_job(body), SCHEMA)


async def prepared(made: League, run: int, **prepare: Any) -> tuple[Preparation | None, str]:
    """What a run's tasks, and its model's record, tell of the columns; or why it failed."""
    name = f"run{run:09}"
    await made.submit(name, **job(run, **prepare).model_dump(mode="json", exclude_defaults=True) | {"rounds": 1})
    record = await made.ended(name)
    if record.state != "completed":
        return None, record.reason
    tasks = [task for task in made.published(TASK, Task) if task.run == name and task.kind is TaskKind.TRAIN]
    return Preparation.model_validate(tasks[0].config["preparation"]), ""


async def count_of_burns(made: League) -> tuple[int, int, list[str]]:
    """(least, most) rows with the value, and why jobs failed, by jobs with other `rare` and seed."""
    least, most, refusals = 0, COUNTED, []
    for run in range(1, 8):
        if most - least <= 1:
            break
        rare = (least + most) // 2
        found, why = await prepared(made, run, categories={"rare": rare})
        if found is None:
            refusals.append(why)
            break
        least, most = (rare, most) if "ward=burns" in found.outputs else (least, rare)
    return least, most - 1, refusals


def world(files: dict[str, Path], **rules: Any) -> dict[str, Any]:
    def worker(clock: Clock, number: int) -> ProcessWorker:
        return ProcessWorker(DataSettings(train=files[WARDS[number]]), ThreadedProcess(clock, 0.1))

    return {"worker": worker, "schema": SCHEMA, "rules": CAUTIOUS | rules}


@in_virtual_time
async def test_jobs_that_ask_for_rare_values_again_and_again_do_not_tell_how_often_one_is_there(
    clock: VirtualClock, tmp_path: Path
) -> None:
    with threadpool_limits(1):
        async with hub_of(clock, tmp_path / "hub", *WARDS, **world(written(tmp_path, burnt=True))) as made:
            least, most, [why] = await count_of_burns(made)
            assert (least, most) == (0, COUNTED - 1)
            assert "asking.protocols: category_counts" in why
            told = {life.participant: life.protocols for life in made.published(PRESENCE, Presence)}
            [warning] = closed_protocols(job(1, categories={"rare": 4}), told)
            assert "closed by the policy of east, north, south" in warning
            # What the warning and the refusal name instead is the same whether the person is there or not.
            coarse, why = await prepared(made, 9)
            assert coarse is not None, why
    assert {"ward=burns", "ward=general", "ward=stroke"} <= set(coarse.outputs)


@pytest.mark.parametrize("burnt", [True, False])
@pytest.mark.control("test_jobs_that_ask_for_rare_values_again_and_again_do_not_tell_how_often_one_is_there")
def test_control_where_a_site_counts_for_everybody_a_few_jobs_tell_the_one_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, burnt: bool
) -> None:
    monkeypatch.setattr(AskingPolicy, "check_protocols", lambda *_, **__: None)
    clock = VirtualClock()

    async def story() -> None:
        async with hub_of(clock, tmp_path / "hub", *WARDS, **world(written(tmp_path, burnt=burnt))) as made:
            assert await count_of_burns(made) == (int(burnt), int(burnt), [])

    with threadpool_limits(1):
        clock.run(story())


async def mean_of_lactate(made: League) -> tuple[float | None, str]:
    found, why = await prepared(made, 1)
    if found is None:
        return None, why
    [lactate] = [one for one in found.columns if one.name == "lactate"]
    assert isinstance(lactate, PreparedNumber)
    return lactate.fill, ""


@in_virtual_time
async def test_the_mean_of_a_column_of_which_one_person_alone_has_a_cell_is_not_told(
    clock: VirtualClock, tmp_path: Path
) -> None:
    with threadpool_limits(1):
        files = written(tmp_path, burnt=False, lactates=1)
        async with hub_of(clock, tmp_path / "hub", *WARDS, **world(files)) as made:
            mean, why = await mean_of_lactate(made)
            assert mean is None
            assert f"{TARGET} refused ({HiddenFailure.UNFIT.text})" in why
            without = {"name": "lactate", "scale": "none", "missing": "constant", "indicator": False}
            found, why = await prepared(made, 2, columns=[without])
            assert found is not None, why


@in_virtual_time
@pytest.mark.control("test_the_mean_of_a_column_of_which_one_person_alone_has_a_cell_is_not_told")
async def test_control_where_the_rule_on_few_is_gone_the_mean_is_that_persons_cell(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AskingPolicy, "check_group", lambda *_, **__: None)
    with threadpool_limits(1):
        files = written(tmp_path, burnt=False, lactates=1)
        async with hub_of(clock, tmp_path / "hub", *WARDS, **world(files)) as made:
            mean, why = await mean_of_lactate(made)
            assert mean == LACTATE, why


@in_virtual_time
async def test_an_honest_column_of_cells_enough_at_one_site_is_prepared(clock: VirtualClock, tmp_path: Path) -> None:
    with threadpool_limits(1):
        files = written(tmp_path, burnt=False, lactates=20)
        async with hub_of(clock, tmp_path / "hub", *WARDS, **world(files)) as made:
            mean, why = await mean_of_lactate(made)
            assert mean == pytest.approx(LACTATE), why
