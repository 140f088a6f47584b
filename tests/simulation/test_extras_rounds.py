"""What an algorithm exchanges beside the model (SCAFFOLD's control): reduced with it, of the same sites, replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clocks import in_virtual_time
from hanse_coordinator.records import RunRecord
from hanse_fabric.clock import Clock
from hanse_fabric.messages import ObjectRef, ReduceJob, Task, TaskKind
from hanse_fabric.subjects import JOB, TASK
from hanse_fabric.tensors.file import decode_tensors
from hanse_fabric.virtual_time import VirtualClock
from simulation.faults import fails, silent, tells
from simulation.league import League
from simulation.stories import completed, ended, hub_of, job_of, outcomes_when_killed
from simulation.trainer import FEATURES, Trainer

TWO, THREE = ("north", "south"), ("east", "north", "south")
DELTA = {"east": 3.0, "north": 6.0, "south": 9.0}
"""Each site's change of the control, by its number among the three."""


def scaffold(**changes: Any) -> dict[str, Any]:
    return job_of(train={"algorithm": {"name": "scaffold"}}, **changes)


def reductions(made: League, *, of_control: bool = True) -> dict[str, ReduceJob]:
    """The reductions of rounds by step and attempt; a job that is asked for twice is asked for the same."""
    jobs: dict[str, ReduceJob] = {}
    for job in made.published(JOB, ReduceJob):
        if job.round and ("-control" in job.id) == of_control:
            assert jobs.setdefault(job.id, job) == job
    return jobs


def number(made: League, ref: ObjectRef | None) -> float:
    """What a control is: all its values are one."""
    assert ref is not None
    data = ref.inline or made.store.get(str(ref.key), limit=1 << 20)
    values = decode_tensors(data)[1]["weight"]
    assert (values == values[0]).all()
    return float(values[0])


def names(job: ReduceJob) -> list[str]:
    return [row.participant for row in job.updates]


def tasks_of(made: League, step: str) -> dict[str, Task]:
    return {task.participant: task for task in made.published(TASK, Task) if task.step == step}


@in_virtual_time
async def test_a_control_begins_at_zero_moves_by_the_share_of_all_and_goes_to_the_next_rounds_sites(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, *THREE) as made:
        await completed(made, scaffold(participants={"minimum": 2, "fraction": 0.6}))
    controls, models = list(reductions(made).values()), list(reductions(made, of_control=False).values())
    assert [(job.from_zero, job.model is None) for job in controls] == [(True, True), (None, False), (None, False)]
    former = 0.0
    for round_number, (job, model) in enumerate(zip(controls, models, strict=True), start=1):
        assert names(job) == names(model)
        assert len(names(job)) == 2
        assert {row.weight for row in job.updates} == {1.0}
        assert job.strategy["optimizer"] == {"name": "sgd", "lr": 2 / 3, "momentum": 0.0}
        for name, task in tasks_of(made, f"r{round_number}-train").items():
            assert task.extras == (None if round_number == 1 else {"control": job.model}), name
        if job.model is not None:
            assert number(made, job.model) == pytest.approx(former)
        former += sum(DELTA[name] for name in names(job)) / 3


@in_virtual_time
async def test_a_control_stays_the_mean_of_all_when_participants_join_later(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, *TWO) as made:
        made.let("north", silent("r1-evaluate"))
        await made.submit(**scaffold(participants={"minimum": 2, "deadline": 600.0}))
        await made.event("task-answered", step="r1-evaluate")
        await made.add_site("east", Trainer(clock, 2, 0.1))
        await clock.sleep(2)
        made.let("north")
        await made.restart("north")
        assert (await made.ended()).state == "completed"
    first, second, third = reductions(made).values()
    assert names(second) == ["east", "former-control", "north", "south"]
    assert (second.model, second.from_zero, second.updates[1].weight) == (None, True, 2.0)
    mean = (3.0 + 6.0) / 2
    assert number(made, second.updates[1].ref) == pytest.approx(mean)
    # East's first change and the others' second over the three, beside what the two had before.
    assert number(made, third.model) == pytest.approx((2 * mean + 3.0 + 6.0 + 9.0) / 3)
    assert first.strategy["optimizer"]["lr"] == third.strategy["optimizer"]["lr"] == 1.0


@in_virtual_time
async def test_an_answer_without_the_control_is_none(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *TWO) as made:
        made.let("south", tells(TaskKind.TRAIN, extras=None))
        record = await ended(made, scaffold(participants={"retries": 0}))
    assert record.state == "failed"
    assert "south failed (extras: control is not given, which the job's algorithm needs)" in record.reason


def spoilt(clock: Clock, site: int) -> Trainer:
    """The first one's control is no number."""
    trainer = Trainer(clock, site, 0.1)
    if site == 0:
        trainer.control = np.full(FEATURES, np.nan)
    return trainer


@in_virtual_time
async def test_whose_control_is_refused_is_in_the_model_neither(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *THREE, worker=spoilt) as made:
        await completed(made, scaffold(rounds=2, participants={"quorum": 0.5}))
    done = [(job.round, names(job)) for job in reductions(made, of_control=False).values()]
    assert done[:2] == [(1, list(THREE)), (1, ["north", "south"])]
    assert [names(job) for job in reductions(made).values()][:2] == [list(THREE), ["north", "south"]]
    assert {event.data["participant"] for event in made.events("refused")} == {"east"}
    assert {name: task.trained for name, task in tasks_of(made, "r2-train").items()} == {
        "east": 0, "north": 1, "south": 1,
    }  # fmt: skip


@in_virtual_time
async def test_each_site_is_told_its_own_last_round_that_counted(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *THREE) as made:
        made.let("east", fails("r2-train"))
        await completed(made, job_of(participants={"quorum": 0.5, "retries": 0}))
    told = {task.step: task.trained for task in made.published(TASK, Task) if task.participant == "east"}
    # Whether a step that closed at its quorum asked east does not matter: what it was asked says so.
    expected = {"r1-train": 0, "r1-evaluate": 1, "r2-evaluate": 1, "r3-train": 1, "r3-evaluate": 3}
    assert {step: told[step] for step in expected} == expected
    assert told.get("r0-initialize") is None


QFEDAVG = {"reduction": {"name": "qfedavg", "q": 1.0, "lr": 0.1}}


@in_virtual_time
async def test_numbers_that_a_strategy_needs_are_asked_for_and_reach_it(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *TWO) as made:
        await completed(made, job_of(rounds=1, strategy=QFEDAVG))
    assert tasks_of(made, "r1-train")["north"].config["info"] == ["first_loss"]
    told = [result.info for name in TWO for result in made.conduct[name].answered if result.step == "r1-train"]
    [job] = reductions(made, of_control=False).values()
    assert [row.info for row in job.updates] == [{"first_loss": (info or {})["first_loss"]} for info in told]


@in_virtual_time
async def test_an_answer_without_such_a_number_is_none(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *TWO) as made:
        made.let("south", tells(TaskKind.TRAIN, info=None))
        record = await ended(made, job_of(strategy=QFEDAVG, participants={"retries": 0}))
    assert "info.first_loss: None is not a finite number, which the job's strategy needs" in record.reason


@in_virtual_time
async def test_feddyns_server_is_told_the_share_that_takes_part(clock: VirtualClock, tmp_path: Path) -> None:
    strategy = {"optimizer": {"name": "feddyn", "alpha": 0.1}}
    async with hub_of(clock, tmp_path, *THREE) as made:
        await completed(made, job_of(rounds=1, strategy=strategy, participants={"minimum": 2, "fraction": 0.6}))
    [job] = reductions(made, of_control=False).values()
    assert job.strategy["optimizer"] == {"name": "feddyn", "alpha": 0.1, "share": 2 / 3}


def test_a_coordinator_killed_at_any_publication_carries_the_same_controls(tmp_path: Path) -> None:
    def told(made: League, record: RunRecord) -> object:
        controls = reductions(made)
        assert len(controls) == 3
        return record.model_digest, tuple((job.id, job.updates) for job in controls.values())

    killed = outcomes_when_killed(tmp_path, TWO, scaffold(rounds=3), every=5, told=told)
    assert len(killed) > 8
    assert set(killed) == {killed[0]}


@in_virtual_time
async def test_a_control_that_is_too_much_for_all_tasks_rests_in_the_store(clock: VirtualClock, tmp_path: Path) -> None:
    """How long it rests is told by test_objects_of_a_run.py."""
    async with hub_of(clock, tmp_path, *TWO, inline_limit=1) as made:
        await made.submit(**scaffold())
        await made.until(lambda record: record.round == 2)
        extras = tasks_of(made, "r2-train")["north"].extras
        assert extras is not None
        assert extras["control"].inline is None
        assert number(made, extras["control"]) == pytest.approx((3.0 + 6.0) / 2)
