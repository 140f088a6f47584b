"""Rounds in mode pairwise: the bits of ring arithmetic, whoever drops out at whichever step. (Coordinators that die are
in test_masked_rounds.py.)"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from clocks import in_virtual_time
from hanse_coordinator.records import RunRecord
from hanse_coordinator.runs.journal import JournalEntry
from hanse_fabric.messages import MaskingMode, ReduceJob, TaskKind
from hanse_fabric.subjects import JOB, JOURNAL
from hanse_fabric.virtual_time import VirtualClock
from hanse_privacy.pairwise.messages import UnmaskAnswer
from simulation.faults import Fault, fails, silent, tampers, tells
from simulation.league import League
from simulation.stories import completed, ended, heard, hub_of, job_of

NAMES = ("east", "north", "south", "west")
SEVEN = tuple(f"site-{number}" for number in range(7))
TOLERANT = {"minimum": 3, "quorum": 0.7, "grace": 0.2, "deadline": 30}
HALF = TOLERANT | {"quorum": 0.5}


def pairwise_job(mode: str = "pairwise", **changes: Any) -> dict[str, Any]:
    return job_of(**{"participants": {"minimum": 3}, "rounds": 1, "secure_aggregation": {"mode": mode}} | changes)


def sets(made: League) -> dict[str, tuple[str, ...]]:
    """Of whom an aggregator was asked for the sum, by session."""
    return {
        job.sum.session: tuple(update.participant for update in job.updates)
        for job in made.published(JOB, ReduceJob)
        if job.sum is not None and job.sum.mode is MaskingMode.PAIRWISE
    }


@in_virtual_time
async def test_keys_are_advertised_once_a_run_and_the_first_sums_session_alone_waits_for_secrets_none_of_them_journaled(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        await completed(made, pairwise_job(rounds=2))
    assert set(sets(made)) == {"r1-train", "r1-evaluate", "r2-train", "r2-evaluate"}
    for name in NAMES:
        ends = [step.rsplit("-", 1)[-1] for step in heard(made, name)]
        assert ends.count("advertise") == 1
        assert (ends.count("share"), ends.count("unmask")) == (1, 4)
    large = ("-share", "-unmask", "r1-train", "r1-evaluate")
    entries = [entry for entry in made.published(JOURNAL, JournalEntry) if entry.step.endswith(large)]
    assert entries
    assert all("payload" not in answer for entry in entries for answer in entry.body.get("answers", []))


@in_virtual_time
async def test_where_the_next_step_is_of_others_than_shared_ahead_its_secrets_are_asked_for(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        made.let("south", silent("r1-evaluate"))
        await completed(made, pairwise_job(rounds=3, participants=TOLERANT))
    assert sets(made)["r1-evaluate"] == ("east", "north", "west")
    assert [step for step in heard(made, "east") if step.endswith("-share")] == ["r1-train-share", "r2-train-m2-share"]
    assert sets(made)["r2-train-m2"] == sets(made)["r3-train"] == NAMES


@in_virtual_time
async def test_who_does_not_share_is_not_in_the_set(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        made.let("west", silent("r1-train-share"))
        await completed(made, pairwise_job(participants=TOLERANT))
    assert sets(made)["r1-train"] == NAMES[:3]
    assert "r1-train" not in heard(made, "west")


def outcome(
    folder: Path, mode: str, faults: Mapping[str, Sequence[Fault]], *, sites: Sequence[str] = NAMES, **changes: Any
) -> tuple[RunRecord, League]:
    clock = VirtualClock()

    async def story() -> tuple[RunRecord, League]:
        async with hub_of(clock, folder / mode, *sites) as made:
            for name, its in faults.items():
                made.let(name, *its)
            return await completed(made, pairwise_job(mode, **changes)), made

    return clock.run(story())


DROPOUTS: dict[str, tuple[dict[str, Sequence[Fault]], dict[str, Any], dict[str, tuple[str, ...]]]] = {
    "of the masked step, whose masks are recovered": (
        {"south": [silent("r1-train")], "north": [silent("r2-train", "r2-evaluate")]},
        {"rounds": 2, "participants": TOLERANT},
        {"r1-train": ("east", "north", "west"), "r2-train": ("east", "south", "west")},
    ),
    "before unmasking, who is in the sum": (
        {"south": [silent("r1-train-unmask")]},
        {"participants": TOLERANT, "evaluate": {"every": 0}},
        {"r1-train": NAMES},
    ),
    "after their updates are in, too many of them, so that the sum is made again in a new session": (
        {"south": [fails("r1-train-unmask*")], "west": [fails("r1-train-unmask*")]},
        {"evaluate": {"every": 0}},
        {"r1-train-s2": NAMES},
    ),
}


@pytest.mark.parametrize("when", DROPOUTS)
def test_who_drops_out_changes_no_bit_of_the_others_sum(tmp_path: Path, when: str) -> None:
    faults, changes, expected = DROPOUTS[when]
    masked, made = outcome(tmp_path, "pairwise", faults, **changes)
    plain, _ = outcome(tmp_path, "ring", faults, **changes)
    assert masked.model_digest == plain.model_digest
    trained = {session: names for session, names in sets(made).items() if "train" in session}
    assert trained == expected


EIGHT = tuple(f"site-{number}" for number in range(8))


def test_where_all_help_to_unmask_the_step_is_done_again_by_fewer_by_the_minimum(tmp_path: Path) -> None:
    """More than twice the minimum are needed for it."""
    all_help = {"mode": "pairwise", "threshold": len(EIGHT)}
    masked, made = outcome(
        tmp_path, "pairwise", {"site-7": [tampers(TaskKind.TRAIN)]}, sites=EIGHT, participants=HALF,
        secure_aggregation=all_help, evaluate={"every": 0},
    )  # fmt: skip
    first, second = set(sets(made)["r1-train"]), set(sets(made)["r1-train-s2"])
    assert (first, len(second)) == (set(EIGHT), 5)
    assert "site-7" not in second
    gone = {name: [fails("r1-train")] for name in first - second}
    without, _ = outcome(tmp_path, "ring", gone, sites=EIGHT, participants=HALF, evaluate={"every": 0})
    assert masked.model_digest == without.model_digest


@in_virtual_time
async def test_whoever_signs_another_request_is_left_out_before_anything_is_unmasked(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, *SEVEN) as made:
        made.let("site-6", tells(TaskKind.TRAIN, payload=b"{}"))
        await completed(made, pairwise_job(participants=HALF))
    assert {event.data["participant"] for event in made.events("refused")} == {"site-6"}
    # What was shared ahead for the evaluation ended with the new session, so it is shared anew.
    assert sets(made) == {"r1-train-s2": SEVEN[:-1], "r1-evaluate-m2": SEVEN}


@in_virtual_time
async def test_false_shares_are_refused_by_name_and_the_others_suffice(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        made.let("west", tells(TaskKind.UNMASK, payload=UnmaskAnswer(shares=bytes(33 * 4)).encode()))
        await completed(made, pairwise_job())
    refused = [event.data for event in made.events("refused")]
    assert {event["participant"] for event in refused} == {"west"}
    assert "is not what" in refused[0]["reason"]


@in_virtual_time
async def test_a_site_that_lost_its_disk_takes_part_again_with_a_new_key(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        await made.submit(**pairwise_job(rounds=5, participants=TOLERANT))
        await made.until(lambda record: record.round == 1)
        await made.processes["west"].crash()
        shutil.rmtree(made.folder / "west" / "pairwise")
        made.processes["west"].start(made.group)
        record = await made.ended()
    assert (record.state, record.reason) == ("completed", "")
    without = [session for session, names in sets(made).items() if names == NAMES[:3]]
    assert without, "it was missed nowhere"
    assert sets(made)["r5-train"] == NAMES
    assert len([step for step in heard(made, "west") if step.endswith("advertise")]) > 1


@in_virtual_time
async def test_a_threshold_that_the_members_cannot_have_fails_the_run_with_the_reason(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        record = await ended(made, pairwise_job(secure_aggregation={"mode": "pairwise", "threshold": 2}))
    assert record.state == "failed"
    assert "threshold: 2 is not more than half of the 4 participants" in record.reason


@pytest.mark.parametrize(
    ("fault", "session", "next_session"),
    [
        (silent("r1-train-share"), "r1-train-m2", "r1-evaluate"),
        (fails(TaskKind.TRAIN), "r1-train-s2", "r1-evaluate-m2"),
    ],
    ids=["share", "answer"],
)
def test_where_fewer_than_the_threshold_are_left_those_begin_another_session(
    tmp_path: Path, fault: Fault, session: str, next_session: str
) -> None:
    """Five of seven are the threshold, four the quorum; three are lost."""
    clock = VirtualClock()

    async def story() -> None:
        async with hub_of(clock, tmp_path, *SEVEN) as made:
            for name in SEVEN[4:]:
                made.let(name, fault)
            await completed(made, pairwise_job(participants=HALF))
        assert sets(made) == {session: SEVEN[:4], next_session: SEVEN}

    clock.run(story())


@in_virtual_time
async def test_too_few_who_share_fail_the_run_by_name(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        for name in NAMES[:2]:
            made.let(name, fails(TaskKind.SHARE))
        record = await ended(made, pairwise_job(participants=TOLERANT))
    assert record.state == "failed"
    assert "2 of 4 participants" in record.reason
