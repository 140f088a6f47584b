"""Training with sums in the middle: all who were asked, or the step again with who is left; where masked, with all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clocks import in_virtual_time
from hanse_coordinator.records import RunRecord
from hanse_fabric.messages import ExchangeJob, Outcome, TaskKind
from hanse_fabric.subjects import JOB
from hanse_fabric.virtual_time import VirtualClock
from simulation.faults import fails, refuses, silent, tells
from simulation.league import League
from simulation.stories import completed, ended, heard, hub_of, job_of, outcomes_when_killed
from simulation.test_pairwise_rounds import sets

TWO, THREE, FOUR = ("north", "south"), ("east", "north", "south"), ("east", "north", "south", "west")
FEDTAN: dict[str, Any] = {
    "rounds": 1,
    "model": {"name": "mlp", "batch_norm": True},
    "train": {"algorithm": {"name": "fedtan", "patience": 1}},
    "evaluate": {"every": 0},
}


def fedtan(**changes: Any) -> dict[str, Any]:
    model = FEDTAN["model"] | changes.pop("model", {})
    return job_of(**{"participants": {"quorum": 0.5}} | FEDTAN | {"model": model} | changes)


def masked(mode: str = "pairwise", retries: int = 2) -> dict[str, Any]:
    participants = {"minimum": 3, "quorum": 0.7, "grace": 0.2, "retries": retries}
    return fedtan(participants=participants, secure_aggregation={"mode": mode})


def sessions(made: League) -> list[tuple[str, tuple[str, ...]]]:
    return [(one.step, one.participants) for one in made.published(JOB, ExchangeJob)]


@in_virtual_time
async def test_all_take_part_in_one_session_a_round(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *TWO) as made:
        await completed(made, fedtan(rounds=2))
    assert sessions(made) == [("r1-train", TWO), ("r2-train", TWO)]


@in_virtual_time
async def test_a_failure_of_one_is_another_session_of_the_others_at_once(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *THREE) as made:
        made.let("south", fails("r1-train"))
        await completed(made, fedtan())
    assert made.events("round-finished")[0].data["participants"] == ["east", "north"]
    assert made.events("exchange-broken")[0].data["left"] == ["east", "north"]
    assert sessions(made) == [("r1-train", THREE), ("r1-train-a2", ("east", "north"))]
    assert set(heard(made, "south")) <= {"r0-initialize", "r1-train"}


@in_virtual_time
async def test_answers_of_a_broken_session_are_not_used(clock: VirtualClock, tmp_path: Path) -> None:
    """The others had all their sums, and then south failed."""
    async with hub_of(clock, tmp_path, *THREE) as made:
        made.let("south", tells(TaskKind.TRAIN, outcome=Outcome.FAILED, update=None, code="training-failed"))
        await completed(made, fedtan())
    trained = [task for task in made.conduct["east"].heard if task.kind is TaskKind.TRAIN]
    assert [(task.step, task.peers) for task in trained] == [("r1-train", 3), ("r1-train-a2", 2)]
    assert trained[0].seed == trained[1].seed
    assert [result.step for result in made.conduct["east"].answered if result.update is not None][-2:] == [
        "r1-train", "r1-train-a2",
    ]  # fmt: skip


@in_virtual_time
async def test_too_few_left_end_the_run_with_who_and_why(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *TWO) as made:
        made.let("south", fails(TaskKind.TRAIN))
        record = await ended(made, fedtan())
    assert record.state == "failed"
    assert "1 of 2 participants are left" in record.reason
    assert "south failed (diverged)" in record.reason


@in_virtual_time
async def test_where_too_few_are_left_all_are_asked_again(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *TWO) as made:
        made.let("south", fails("r1-train"))
        await completed(made, fedtan())
    assert sessions(made) == [("r1-train", TWO), ("r1-train-a2", TWO)]


@in_virtual_time
async def test_rounds_with_frozen_statistics_are_plain_rounds(clock: VirtualClock, tmp_path: Path) -> None:
    state = [{"layers": "statistics", "keep": "frozen", "from_round": 2}]
    async with hub_of(clock, tmp_path, *TWO) as made:
        await completed(made, fedtan(rounds=3, model={"state": state}))
    assert [step for step, _ in sessions(made)] == ["r1-train"]


@pytest.mark.parametrize("mode", [None, "pairwise"], ids=["plain", "pairwise"])
def test_a_coordinator_killed_at_any_publication_goes_on_with_the_same_sites(tmp_path: Path, mode: str | None) -> None:
    def told(made: League, record: RunRecord) -> object:
        assert mode is None or sets(made) == {"r1-train-s2": FOUR}
        return record.model_digest, frozenset(sessions(made))

    sites, job = (THREE, fedtan(rounds=2)) if mode is None else (FOUR, masked())
    faults = {"south": [fails("r1-train")]}
    killed = outcomes_when_killed(tmp_path, sites, job, every=5 if mode is None else 21, told=told, faults=faults)
    assert len(killed) > 3
    assert set(killed) == {killed[0]}


@pytest.mark.parametrize("mode", ["pairwise", "ring"])
def test_after_a_dropout_the_same_sites_begin_a_new_masked_session(tmp_path: Path, mode: str) -> None:
    clock = VirtualClock()

    async def story() -> None:
        async with hub_of(clock, tmp_path, *FOUR) as made:
            made.let("south", fails("r1-train"))
            await completed(made, masked(mode))
        assert sessions(made) == [("r1-train", FOUR), ("r1-train-s2", FOUR)]
        assert all(one.ring is not None and one.ring.bits == 64 for one in made.published(JOB, ExchangeJob))
        assert made.events("round-finished")[0].data["participants"] == list(FOUR)
        assert sets(made) == ({"r1-train-s2": FOUR} if mode == "pairwise" else {})

    clock.run(story())


@in_virtual_time
async def test_without_one_of_them_there_is_no_masked_sum_and_the_run_ends(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *FOUR) as made:
        made.let("south", fails(TaskKind.TRAIN, reason="killed by the test"))
        record = await ended(made, masked())
    assert record.state == "failed"
    assert "of all 4 participants or of none" in record.reason
    assert "killed by the test" in record.reason
    assert [names for _, names in sessions(made)] == [FOUR] * 3
    assert sets(made) == {}


@in_virtual_time
async def test_the_set_is_of_those_who_share_in_the_first_session(clock: VirtualClock, tmp_path: Path) -> None:
    """Before there is any sum, it is as free as in any round; afterwards nobody may be left out."""
    async with hub_of(clock, tmp_path, *FOUR) as made:
        made.let("south", silent("r1-train-share"))
        made.let("west", fails("r1-train"))
        await completed(made, masked())
    three = ("east", "north", "west")
    assert sessions(made) == [("r1-train", three), ("r1-train-s2", three)]
    assert sets(made) == {"r1-train-s2": three}


@in_virtual_time
async def test_a_session_that_one_of_them_does_not_share_in_is_not_begun(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *FOUR) as made:
        made.let("south", fails("r1-train"), silent("r1-train-s2-share"))
        await completed(made, masked())
    assert sessions(made) == [("r1-train", FOUR), ("r1-train-s3", FOUR)]


@in_virtual_time
async def test_a_refusal_is_not_asked_for_again(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *FOUR) as made:
        made.let("south", refuses(TaskKind.TRAIN, reason="beyond the bound"))
        record = await ended(made, masked())
    assert record.state == "failed"
    assert "beyond the bound" in record.reason
    assert len(sessions(made)) == 1
