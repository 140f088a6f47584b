"""Runs with noise that is correlated over their rounds: sites rest between their turns, and a kill changes no noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clocks import in_virtual_time
from hanse_coordinator.records import RunRecord
from hanse_fabric.messages import Reduced, Task, TaskKind
from hanse_fabric.subjects import REDUCED, TASK
from hanse_fabric.virtual_time import VirtualClock
from hanse_privacy.correlated.matrix import round_name
from simulation.league import League
from simulation.stories import completed, ended, hub_of, job_of, outcomes_when_killed, reductions, told_to_people

NAMES = ("east", "north", "south", "west")
PRIVATE = {
    "placement": "central", "mechanism": "dp_ftrl", "noise_multiplier": 2.0, "min_separation": 2,
    "matrix": {"name": "banded", "bands": 2},
}  # fmt: skip


def correlated_job(**changes: Any) -> dict[str, Any]:
    half = {"minimum": 2, "fraction": 0.5}
    return job_of(**({"rounds": 4, "weighting": "uniform", "privacy": PRIVATE, "participants": half} | changes))


def trained(made: League) -> dict[int, set[str]]:
    """Who was asked to train, by round."""
    asked: dict[int, set[str]] = {}
    for task in made.published(TASK, Task):
        if task.kind is TaskKind.TRAIN:
            asked.setdefault(task.round, set()).add(task.participant)
    return asked


@in_virtual_time
async def test_who_trained_in_a_round_rests_in_the_next(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        await completed(made, correlated_job())
    asked = trained(made)
    assert [len(asked[number]) for number in (1, 2, 3, 4)] == [2, 2, 2, 2]
    for number in (1, 2, 3):
        assert not asked[number] & asked[number + 1]


@in_virtual_time
async def test_aggregators_have_one_seed_for_the_run_and_the_names_of_all_rounds_before(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        record = await completed(made, correlated_job())
    asked, names = reductions(made), trained(made)
    (seed,) = {reduction["seed"] for reduction in asked.values()}
    told = told_to_people(made, record)
    assert seed not in told
    for number, reduction in asked.items():
        assert list(reduction["before"]) == [round_name(at, names[at]) for at in range(1, number)]


@in_virtual_time
async def test_a_run_ends_where_too_few_have_rested(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *NAMES[:3]) as made:
        record = await ended(made, correlated_job())
    assert record.state == "failed"
    assert "1 of those present may take part again" in record.reason


def test_a_coordinator_that_is_killed_at_any_step_asks_for_the_same_noise(tmp_path: Path) -> None:
    def told(made: League, record: RunRecord) -> object:
        assert len(reductions(made)) == record.round == 3
        asked = trained(made)
        assert not asked[1] & asked[2]
        assert not asked[2] & asked[3]
        made_of: dict[str, str] = {}
        for reduced in made.published(REDUCED, Reduced):
            digest = reduced.outputs["model"].digest
            assert made_of.setdefault(reduced.step, digest) == digest  # however often it was made
        return sorted(made_of)

    outcomes = outcomes_when_killed(tmp_path, NAMES, correlated_job(rounds=3), every=5, told=told)
    assert len(outcomes) > 5
    assert all(outcome == outcomes[0] for outcome in outcomes)


def test_an_aggregator_that_is_killed_at_any_step_makes_the_same_model_again(tmp_path: Path) -> None:
    def told(made: League, record: RunRecord) -> object:
        made_of: dict[str, str] = {}
        for reduced in made.published(REDUCED, Reduced):
            digest = reduced.outputs["model"].digest
            assert made_of.setdefault(reduced.step, digest) == digest
        return sorted(made_of), record.round

    outcomes = outcomes_when_killed(
        tmp_path, NAMES, correlated_job(rounds=3), every=1, process="aggregator-0", told=told
    )
    assert len(outcomes) > 2
    assert all(outcome == outcomes[0] for outcome in outcomes)
