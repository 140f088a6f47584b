"""A spoilt answer that leaves too few for a sum without it: the same sites are asked again, and make the same sum."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clocks import in_virtual_time
from hanse_coordinator.records import RunRecord
from hanse_fabric.messages import TaskKind
from hanse_fabric.virtual_time import VirtualClock
from simulation.faults import Fault, refuses, seals_nothing, silent, tampers, tells
from simulation.league import League
from simulation.stories import completed, ended, hub_of, outcomes_when_killed
from simulation.test_masked_rounds import (
    MANY,
    NAMES,
    TOLERANT,
    Outcome,
    masked_job,
    noisy_job,
    played,
    sums,
    trainings,
    without_masks,
)
from simulation.test_pairwise_rounds import sets
from simulation.test_sums_within_rounds import masked as fedtan_job
from simulation.test_sums_within_rounds import sessions

__all__ = ["without_masks"]

SPOILT: dict[str, tuple[str, Fault]] = {
    "another update": ("compensator", tampers("r1-train")),
    "another tally": ("compensator", tampers("r1-evaluate")),
    "a seed that does not open": ("compensator", seals_nothing("r1-train")),
    "another update, masked by the others": ("pairwise", tampers("r1-train")),
    "another request signed": ("pairwise", tells("r1-train", payload=b"{}")),
    "another update, unmasked": ("ring", tampers("r1-train")),
}
"""The mode, and what is wrong with one answer of a step's first session."""

ALL = {"quorum": 1.0}


def of_training(made: League) -> dict[str, tuple[str, ...]]:
    """Of whom masks were summed, by session."""
    return {session: names for session, names in (sums(made) | sets(made)).items() if "train" in session}


@pytest.mark.parametrize("what", SPOILT)
def test_the_same_sites_are_asked_once_more_and_the_bits_are_those_of_an_undisturbed_run(
    tmp_path: Path, without_masks: Callable[..., Outcome], what: str
) -> None:
    mode, fault = SPOILT[what]
    how = {"rounds": 2, "participants": ALL, "evaluate": {"every": 2 if "tally" not in what else 1}}
    outcome, made = played(tmp_path / "spoilt", mode, NAMES, {"west": fault}, **how)
    assert outcome == without_masks({}, **how)
    assert any(task.step.endswith("-s2") for task in made.conduct["east"].heard)
    assert set(of_training(made).values()) <= {NAMES}
    assert any("the same 4 sites are asked again; refused: west" in str(event.data) for event in made.events("note"))


@pytest.mark.parametrize("mode", ["compensator", "pairwise"])
def test_a_coordinator_killed_at_any_publication_asks_the_same_sites_once_more(
    tmp_path: Path, without_masks: Callable[..., Outcome], mode: str
) -> None:
    def told(made: League, record: RunRecord) -> object:
        assert set(of_training(made).values()) == {NAMES}
        assert set(of_training(made)) == {"r1-train", "r1-train-s2"}
        return record.model_digest, tuple(record.metrics.items())

    faults = {"west": [tampers("r1-train")]}
    every = {"compensator": 11, "pairwise": 29}[mode]
    killed = outcomes_when_killed(
        tmp_path, NAMES, masked_job(mode, participants=ALL), every=every, told=told, faults=faults, known=True
    )
    assert len(killed) > 3
    assert set(killed) == {without_masks({}, participants=ALL)}


@pytest.mark.parametrize("mode", ["compensator", "pairwise"])
@in_virtual_time
async def test_where_it_is_spoilt_each_time_the_run_ends_after_its_retries_and_all_sums_were_of_one_set(
    clock: VirtualClock, tmp_path: Path, mode: str
) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        made.let("west", tampers(TaskKind.TRAIN))
        record = await ended(made, masked_job(mode, participants=ALL | {"retries": 2}))
    assert record.state == "failed"
    assert "the same 4 participants were asked again: refused: west" in record.reason
    assert of_training(made) == dict.fromkeys(("r1-train", "r1-train-s2", "r1-train-s3"), NAMES)


@in_virtual_time
async def test_without_retries_nobody_is_asked_again(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        made.let("west", tampers(TaskKind.TRAIN))
        record = await ended(made, masked_job(participants=ALL | {"retries": 0}))
    assert record.state == "failed"
    assert list(of_training(made)) == ["r1-train"]


@in_virtual_time
async def test_all_whose_answers_are_refused_are_named_and_fewer_than_the_minimum_are_never_summed(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        for name in ("south", "west"):
            made.let(name, seals_nothing(TaskKind.TRAIN))
        record = await ended(made, masked_job())
    assert record.state == "failed"
    assert "south, west" in record.reason
    assert sums(made) == {}


@in_virtual_time
async def test_after_a_smaller_set_it_is_the_smaller_set_that_is_asked_again(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """A third set would tell of few."""
    async with hub_of(clock, tmp_path, *MANY) as made:
        made.let("west", tampers("r1-train"))
        for name in MANY[:-1]:
            made.let(name, tampers("r1-train-s2"))
        await completed(made, masked_job(participants=TOLERANT))
    trained = of_training(made)
    assert list(trained) == ["r1-train", "r1-train-s2", "r1-train-s3"]
    assert trained["r1-train"] == MANY
    assert trained["r1-train-s3"] == trained["r1-train-s2"]
    assert len(trained["r1-train-s2"]) == len(MANY) - 3


@in_virtual_time
async def test_who_is_silent_then_is_waited_for_and_no_fewer_are_summed(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        made.let("west", tampers("r1-train"))
        made.let("east", silent("r1-train-s2"))
        await completed(made, masked_job(participants={"quorum": 0.7}))
    assert of_training(made) == dict.fromkeys(("r1-train", "r1-train-s3"), NAMES)


@in_virtual_time
async def test_who_refuses_then_is_not_asked_again(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        made.let("west", tampers("r1-train"))
        made.let("east", refuses("r1-train-s2", reason="not today"))
        record = await ended(made, masked_job(participants={"quorum": 0.7}))
    assert record.state == "failed"
    assert "not today" in record.reason
    assert list(of_training(made)) == ["r1-train"]


@in_virtual_time
async def test_the_noise_is_drawn_anew_in_as_many_shares(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        made.let("west", tampers("r1-train"))
        await completed(made, noisy_job())
    terms = {task.step: (task.privacy.active, task.privacy.attempt) for task in trainings(made) if task.privacy}
    assert terms == {"r1-train": (4, 1), "r1-train-s2": (4, 2)}


@pytest.mark.parametrize("mode", ["pairwise", "ring"])
def test_with_sums_in_the_middle_a_spoilt_answer_is_asked_for_again_with_all_others(tmp_path: Path, mode: str) -> None:
    clock = VirtualClock()

    async def story() -> str | None:
        async with hub_of(clock, tmp_path / f"{faults}", *NAMES) as made:
            made.let("south", *faults)
            record = await completed(made, fedtan_job(mode))
        again = ["r1-train", *(["r1-train-s2"] if faults else [])]
        assert sessions(made) == [(session, NAMES) for session in again]
        return record.model_digest

    found: dict[bool, Any] = {}
    for faults in ([], [tampers("r1-train")]):
        found[bool(faults)] = clock.run(story())
    assert found[True] == found[False]
