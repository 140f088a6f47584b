"""Rounds with central privacy: the aggregator gets a secret seed for each round, the same when it is asked again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clocks import in_virtual_time
from hanse_coordinator.records import RunRecord
from hanse_fabric.messages import Reduced, Task, TaskKind
from hanse_fabric.subjects import REDUCED, TASK
from hanse_fabric.virtual_time import VirtualClock
from simulation.league import League
from simulation.stories import completed, hub_of, job_of, outcomes_when_killed, reductions, told_to_people

NAMES = ("north", "south")
PRIVATE = {"placement": "central", "mechanism": "gaussian", "noise_multiplier": 2.0, "adaptive_clip": 0.5}


def central_job(**changes: Any) -> dict[str, Any]:
    return job_of(weighting="uniform", privacy=PRIVATE, strategy={"optimizer": {"name": "sgd"}}, **changes)


@in_virtual_time
async def test_each_round_has_a_seed_of_its_own_that_nobody_reads_and_the_norm_that_the_round_before_found(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        record = await completed(made, central_job())
    asked = reductions(made)
    found = [reduced.clip for reduced in made.published(REDUCED, Reduced) if reduced.step.endswith("-reduce")]
    assert [asked[number]["clip"] for number in (1, 2, 3)] == [None, *found[:2]]
    assert [asked[number]["terms"]["round"] for number in (1, 2, 3)] == [1, 2, 3]
    seeds = {reduction["seed"] for reduction in asked.values()}
    assert len(seeds) == 3
    told = told_to_people(made, record)
    assert not any(seed in told for seed in seeds)


@in_virtual_time
async def test_sites_are_told_so_that_their_ledgers_can_charge_it(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        await completed(made, central_job(rounds=1))
    told = {task.kind: task.privacy for task in made.published(TASK, Task)}
    assert told[TaskKind.TRAIN] is not None
    assert told[TaskKind.TRAIN].privacy.placement == "central"
    assert told[TaskKind.EVALUATE] is None


def test_a_reduction_that_is_done_again_after_a_crash_has_the_same_noise(tmp_path: Path) -> None:
    def told(made: League, record: RunRecord) -> object:
        assert len(reductions(made)) == record.round == 2
        return record.model_digest is not None

    assert len(outcomes_when_killed(tmp_path, NAMES, central_job(rounds=2), every=5, told=told)) > 5
