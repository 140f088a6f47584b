"""Who counts in a round: quorum, deadline and grace; late, forged, failed and unusable answers; the silent, named."""

from __future__ import annotations

from pathlib import Path

import pytest

from clocks import in_virtual_time
from hanse_datapod.policy.masking import MaskingPolicy
from hanse_fabric.messages import Task, TaskKind
from hanse_fabric.subjects import TASK
from hanse_fabric.virtual_time import VirtualClock
from simulation.faults import answers_twice, forges, late, refuses, silent, tampers
from simulation.stories import completed, ended, heard, hub_of, job_of

TWO, THREE = ("north", "south"), ("east", "north", "south")
TOLERANT = {"quorum": 0.6, "grace": 0.1}


@in_virtual_time
async def test_a_run_fails_at_a_missed_quorum_and_names_the_silent_who_alone_are_asked_again(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, *TWO) as made:
        made.let("south", silent("r1-train*"))
        record = await ended(made, job_of(participants={"retries": 1}))
    assert record.state == "failed"
    assert "quorum" in record.reason
    assert "south silent" in record.reason
    asked = [(task.step, task.participant) for task in made.published(TASK, Task) if task.kind is TaskKind.TRAIN]
    assert asked == [("r1-train", "north"), ("r1-train", "south"), ("r1-train-a2", "south")]


@in_virtual_time
async def test_a_silent_site_that_answers_when_it_is_asked_again_is_in_the_round(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, *TWO) as made:
        made.let("south", silent("r1-train"))
        await completed(made, job_of(rounds=1, participants={"retries": 2}))
    assert "r1-train-a2" in heard(made, "south")
    assert "r1-train-a2" not in heard(made, "north")
    assert made.events("round-finished")[0].data["participants"] == list(TWO)


@in_virtual_time
async def test_a_site_that_refuses_is_named_with_its_reason_and_not_asked_again(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, *TWO) as made:
        made.let("south", refuses(TaskKind.TRAIN, reason="workflows: not allowed here"))
        record = await ended(made, job_of())
    assert record.state == "failed"
    assert "south refused (workflows: not allowed here)" in record.reason
    assert [step for step in heard(made, "south") if "train" in step] == ["r1-train"]


@in_virtual_time
async def test_a_run_goes_on_without_a_silent_site_when_the_quorum_allows(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *THREE) as made:
        made.let("south", silent(TaskKind.TRAIN))
        await completed(made, job_of(participants=TOLERANT))
    assert made.events("round-finished")[0].data["participants"] == ["east", "north"]


@in_virtual_time
async def test_a_late_answer_is_refused_and_counted(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *THREE) as made:
        made.let("south", late(5.0, "r1-train"))
        for name in ("east", "north"):  # so that the run is still there
            made.let(name, late(60.0, "r1-evaluate"))
        await made.submit(**job_of(rounds=1, participants={"quorum": 0.6, "grace": 0.1, "deadline": 300.0}))
        told = await made.event("late-result", participant="south")
        await made.ended()
    assert (told.data["count"], told.data["step"]) == (1, "r1-train")
    assert [event.detail["reason"] for event in made.audits("result.refuse")] == ["late: step closed"]


@in_virtual_time
async def test_a_forged_signature_is_refused_and_does_not_count(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *TWO) as made:
        made.let("south", forges(TaskKind.TRAIN))
        record = await ended(made, job_of(rounds=1, participants={"retries": 0}))
    [refused] = made.events("refused")
    assert (refused.data["participant"], refused.data["code"]) == ("south", "tampered")
    assert "signature" in refused.data["reason"]
    assert record.state == "failed"
    assert "south silent" in record.reason


@in_virtual_time
async def test_of_a_site_that_answers_twice_with_different_bytes_the_first_answer_counts(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, *TWO) as made:
        made.let("south", answers_twice("r1-train", examples=10_000))
        made.let("north", late(1.0, "r1-train"))  # so that the step is open when the second one comes
        await completed(made, job_of(rounds=1))
    [refused] = made.events("refused")
    assert (refused.data["participant"], refused.data["code"]) == ("south", "conflict")
    assert "another than the site's first answer" in refused.data["reason"]
    told = [event.data for event in made.events("task-answered") if event.data["step"] == "r1-train"]
    assert [(answer["participant"], answer["examples"]) for answer in told] == [("south", 65), ("north", 64)]
    assert made.audits("result.refuse")


@in_virtual_time
async def test_a_refused_update_is_left_out_when_the_quorum_still_holds(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *THREE) as made:
        made.let("south", tampers(TaskKind.TRAIN))
        await completed(made, job_of(rounds=2, participants={"quorum": 0.6}))
    assert [event.data["participants"] for event in made.events("round-finished")] == [["east", "north"]] * 2
    assert {(event.data["participant"], event.data["code"]) for event in made.events("refused")} == {
        ("south", "tampered")
    }
    assert made.audits("update.refuse")


@in_virtual_time
async def test_a_run_fails_when_too_few_usable_updates_remain(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *TWO) as made:
        made.let("south", tampers(TaskKind.TRAIN))
        record = await ended(made, job_of())
    assert record.state == "failed"
    assert "south: " in record.reason


@in_virtual_time
async def test_a_run_without_enough_participants_fails_at_its_patience(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, "north") as made:
        record = await ended(made, job_of())
    assert record.state == "failed"
    assert "1 participants are present after 30 s, 2 are needed: north" in record.reason


@in_virtual_time
async def test_that_no_site_has_pinned_the_compensators_key_is_said_once(clock: VirtualClock, tmp_path: Path) -> None:
    unpinned = {"masking": MaskingPolicy()}
    async with hub_of(clock, tmp_path, *THREE, rules=unpinned) as made:
        record = await ended(made, job_of(secure_aggregation={"mode": "compensator", "minimum": 3}))
    assert record.state == "failed"
    assert record.reason.count("none, for none is pinned") == 1, record.reason
    assert "east, north, south refused (the site's policy forbids it: masking.compensator: " in record.reason


SIX = ("alder", "beech", "cedar", "ebony", "hazel", "maple")


@pytest.mark.parametrize("able", [("maple",), ()])
def test_any_one_participant_that_can_makes_the_first_model(able: tuple[str, ...], tmp_path: Path) -> None:
    clock = VirtualClock()

    async def story() -> None:
        async with hub_of(clock, tmp_path, *SIX) as made:
            for name in set(SIX) - set(able):
                made.let(name, refuses(reason="no data"))
            record = await ended(made, job_of(rounds=1, participants={"minimum": 1, "quorum": 0.1}))
        if able:
            assert (record.state, record.reason) == ("completed", "")
        else:
            assert record.state == "failed"
            assert "refused (no data)" in record.reason

    clock.run(story())
