"""Rounds whose answers are masked by seeds: the model as without masks, and never a sum of a part of a set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clocks import in_virtual_time
from hanse_coordinator.records import RunRecord
from hanse_datapod.worker.port import WorkOutcome, WorkRequest
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import CompensatorRecord, JobKind, MaskAnswer, MaskRequest, ReduceJob, Task, TaskKind
from hanse_fabric.records import Bucket
from hanse_fabric.subjects import COMPENSATORS, JOB, MASK_ANSWER, MASK_REQUEST, TASK
from hanse_fabric.virtual_time import VirtualClock
from hanse_learning.binding import work_digest
from simulation.faults import Fault, fails, late, refuses, seals_nothing, silent, tampers, tells
from simulation.league import League
from simulation.stories import answers, completed, ended, hub_of, job_of, outcomes_when_killed
from simulation.trainer import FEATURES, Trainer, write

NAMES = ("east", "north", "south", "west")
MANY = ("amber", "bell", "cape", "dune", *NAMES)


def masked_job(mode: str = "compensator", **changes: Any) -> dict[str, Any]:
    participants = {"minimum": 3, "grace": 0.1} | changes.pop("participants", {})
    return job_of(participants=participants, **{"secure_aggregation": {"mode": mode}, "rounds": 1} | changes)


UNTOLD: dict[str, Any] = {"evaluate": {"every": 0}}
"""Of a job whose evaluations are not the point: each is a masked step of its own."""


def sums(made: League) -> dict[str, tuple[str, ...]]:
    """Of whom the compensator has added the masks, by session."""
    return {one.session: one.participants for one in made.published(MASK_ANSWER, MaskAnswer) if one.sum is not None}


def trainings(made: League) -> list[Task]:
    return [task for task in made.published(TASK, Task) if task.kind is TaskKind.TRAIN]


@pytest.mark.parametrize("mode", ["compensator", "pairwise"])
def test_a_masked_run_ends_in_the_bits_of_one_without_masks_although_its_coordinator_is_killed_at_any_publication(
    tmp_path: Path, mode: str
) -> None:
    def told(made: League, record: RunRecord) -> object:
        assert set(answers(made).values()) == {1}
        assert mode == "pairwise" or set(sums(made).values()) == {NAMES}
        return record.model_digest, tuple(record.metrics.items())

    clock = VirtualClock()

    async def plain() -> object:
        async with hub_of(clock, tmp_path / "plain", *NAMES) as made:
            record = await completed(made, masked_job("ring"))
            return record.model_digest, tuple(record.metrics.items())

    every = {"compensator": 5, "pairwise": 9}[mode]
    killed = outcomes_when_killed(tmp_path, NAMES, masked_job(mode), every=every, told=told, known=True)
    assert len(killed) > 10
    assert set(killed) == {clock.run(plain())}


TOLERANT = {"quorum": 0.4}

ALL_IN_THE_END: dict[str, Fault] = {
    "an answer that is lost": silent("r1-train"),
    "an answer that comes late": late(7.0, "r1-train"),
    "an evaluation that is lost": silent("r1-evaluate"),
}
"""Of one site, whose step is asked for again after five seconds. A step's second attempt has another name."""


def played(
    folder: Path, mode: str, sites: tuple[str, ...], faults: Mapping[str, Fault], **changes: Any
) -> tuple[tuple[str | None, object], League]:
    """((digest of the model, metrics) of a run, its hub)."""
    clock = VirtualClock()

    async def story() -> tuple[tuple[str | None, object], League]:
        async with hub_of(clock, folder / mode, *sites) as made:
            for name, fault in faults.items():
                made.let(name, fault)
            record = await completed(made, masked_job(mode, **changes))
            return (record.model_digest, tuple(record.metrics.items())), made

    return clock.run(story())


Outcome = tuple[str | None, object]


@pytest.fixture(scope="module")
def without_masks(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Outcome]:
    """What came of a run in the same arithmetic without masks, played once for all who compare theirs with it."""
    found: dict[str, Outcome] = {}

    def of(faults: Mapping[str, Fault], **changes: Any) -> Outcome:
        which = repr((faults, changes))
        if which not in found:
            found[which] = played(tmp_path_factory.mktemp("ring"), "ring", NAMES, faults, **changes)[0]
        return found[which]

    return of


@pytest.mark.parametrize("mode", ["compensator", "pairwise"])
@pytest.mark.parametrize("what", ALL_IN_THE_END)
def test_where_all_have_answered_in_the_end_the_bits_are_those_without_masks(
    tmp_path: Path, without_masks: Callable[..., Outcome], mode: str, what: str
) -> None:
    how = {"rounds": 2, "participants": {"quorum": 1.0, "deadline": 5.0}}
    masked, made = played(tmp_path, mode, NAMES, {"west": ALL_IN_THE_END[what]}, **how)
    assert masked == without_masks({}, **how)
    assert any(task.step.endswith("-a2") for task in made.published(TASK, Task))
    assert {task.masking.session for task in trainings(made) if task.masking} == {"r1-train", "r2-train"}


SIGNS: dict[str, Any] = {"strategy": {"sign_mask": {"tau": 0.9}}}


@pytest.mark.parametrize("mode", ["compensator", "pairwise"])
def test_masked_signs_have_the_bits_of_those_in_the_clear_though_a_site_drops_out(
    tmp_path: Path, without_masks: Callable[..., Outcome], mode: str
) -> None:
    how = {"rounds": 2, "participants": {"minimum": 3, "quorum": 0.7, "grace": 0.2, "deadline": 30}} | UNTOLD
    gone = {"west": silent("r1-train")}
    (model, metrics), made = played(tmp_path, mode, NAMES, gone, **how, **SIGNS)
    assert (model, metrics) == without_masks(gone, **how, **SIGNS)
    assert {task.masking.ring.signs for task in trainings(made) if task.masking} == {8}
    # By its version, a site of release 0.1.0 refuses such a task in words.
    assert {task.encode().count(b'"schema":"hanse.task/2"') for task in trainings(made)} == {1}
    # The control: the signs are looked at.
    assert model != without_masks(gone, **how)[0]


@pytest.mark.parametrize("mode", ["compensator", "pairwise"])
@pytest.mark.parametrize("rotate", [False, True])
def test_parts_and_rotations_of_updates_are_summed_in_both_modes(
    tmp_path: Path, without_masks: Callable[..., Outcome], mode: str, rotate: bool
) -> None:
    how = {"weighting": "uniform", "codec": {"up": [{"name": "random_k", "fraction": 0.5}]}} | UNTOLD
    rings = {each: {"mode": each, "bits": 16, "rotate": rotate} for each in (mode, "ring")}
    masked, _ = played(tmp_path, mode, NAMES, {}, secure_aggregation=rings[mode], **how)
    assert masked == without_masks({}, secure_aggregation=rings["ring"], **how)


def test_a_step_that_is_done_again_without_a_tampered_answer_has_the_bits_of_those_who_are_left(tmp_path: Path) -> None:
    (model, _), made = played(tmp_path, "compensator", MANY, {"west": tampers(TaskKind.TRAIN)}, participants=TOLERANT)
    gone = set(MANY) - set(sums(made)["r1-train-s2"])
    assert "west" in gone
    left_out = dict.fromkeys(gone, fails("r1-train"))
    assert model == played(tmp_path, "ring", MANY, left_out, participants=TOLERANT)[0][0]


class Still(Trainer):
    """A worker whose training changes nothing."""

    async def work(self, request: WorkRequest, on_progress: Callable[[float, str], None]) -> WorkOutcome:
        outcome = await super().work(request, on_progress)
        if request.kind is TaskKind.TRAIN:
            write(request, np.zeros(FEATURES))
        return outcome


@pytest.mark.parametrize("mode", ["compensator", "pairwise"])
@in_virtual_time
async def test_rounds_that_do_not_move_the_model_are_one_work_of_the_same_sites(
    clock: VirtualClock, tmp_path: Path, mode: str
) -> None:
    async with hub_of(clock, tmp_path, *NAMES, worker=lambda clock, number: Still(clock, number, 0.1)) as made:
        record = await completed(made, masked_job(mode, rounds=3, **UNTOLD))
    assert record.round == 3
    assert len({work_digest(task) for task in trainings(made)}) == 1


@in_virtual_time
async def test_one_set_of_a_session_is_asked_for_of_tasks_that_name_key_minimum_and_ring_and_evaluations_are_tallies(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        await completed(made, masked_job(rounds=2))
    assert sums(made) == dict.fromkeys(("r1-train", "r1-evaluate", "r2-train", "r2-evaluate"), NAMES)
    assert len(made.published(MASK_REQUEST, MaskRequest)) == 4
    assert [job.kind for job in made.published(JOB, ReduceJob)].count(JobKind.TALLY) == 2
    tasks = made.published(TASK, Task)
    masked = [task.masking for task in tasks if task.kind is not TaskKind.INITIALIZE]
    assert len(masked) == 16
    for masking in masked:
        assert masking is not None
        assert (masking.compensator, masking.minimum) == (made.sealing.public_bytes, 3)
        assert masking.ring.participants == 4
    assert all(task.masking is None for task in tasks if task.kind is TaskKind.INITIALIZE)


@in_virtual_time
async def test_who_drops_out_before_the_set_is_fixed_costs_nothing(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        made.let("west", silent("r1-train"))
        await completed(made, masked_job(participants={"quorum": 0.7}))
    assert sums(made)["r1-train"] == NAMES[:3]
    assert [one.session for one in made.published(MASK_REQUEST, MaskRequest)].count("r1-train") == 1


def refusal_of_0_1_0(data: bytes) -> str:
    """Why release 0.1.0, which knew the first version of tasks alone, did not take one; empty where it did."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Task, "schema_id", "hanse.task/1")
        patch.setattr(Task, "grown", ("", frozenset()))
        try:
            Task.decode(data)
        except HanseError as error:
            return f"{error.message} ({error.hint})"
    return ""


@pytest.mark.parametrize(
    ("mode", "ring"), [("compensator", {}), ("compensator", {"bits": 8}), ("pairwise", {}), ("pairwise", {"bits": 16})]
)
@in_virtual_time
async def test_a_site_of_release_0_1_0_refuses_masked_tasks_in_words_and_comes_back_when_it_is_upgraded(
    clock: VirtualClock, tmp_path: Path, mode: str, ring: dict[str, int]
) -> None:
    """Rings of 8 and 16 bits, of which it does not know, too."""
    reason = (
        "schema: 'hanse.task/2' is not one that is understood here (hanse.task/1) (upgrade the older of the two sides)"
    )
    narrow = {"secure_aggregation": {"mode": mode, "bound": 8.0, **ring}, "weighting": "uniform"} if ring else {}
    async with hub_of(clock, tmp_path, *NAMES) as made:
        made.let("west", refuses("r1-*", reason=reason, code="unknown-schema"))
        await completed(made, masked_job(mode, rounds=2, participants={"quorum": 0.7}, **narrow))
    assert {task.step for task in trainings(made)} >= {"r1-train", "r2-train"}
    assert all(task.bound is not None for task in trainings(made))
    if ring:
        used = {task.masking.ring.default.bits for task in trainings(made) if task.masking is not None}
        assert used == {ring["bits"]}
    told = {Task.decode(each.data).kind: refusal_of_0_1_0(each.data) for each in made.said(TASK)}
    assert (told[TaskKind.INITIALIZE], told[TaskKind.TRAIN], told[TaskKind.EVALUATE]) == ("", reason, reason)
    finished = {event.round: event.data["participants"] for event in made.events("round-finished")}
    assert finished == {1: list(NAMES[:3]), 2: list(NAMES)}
    assert any("hanse.task/2" in str(event.data) for event in made.events("note"))


@in_virtual_time
async def test_a_seed_that_is_refused_has_the_step_done_again_under_new_masks_without_it(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, *MANY) as made:
        made.let("west", seals_nothing(TaskKind.TRAIN))
        await completed(made, masked_job(participants=TOLERANT))
    assert sums(made)["r1-train-s2"] == MANY[:-1]
    assert "r1-train" not in sums(made)


@in_virtual_time
async def test_a_refusal_that_is_nobodys_seed_ends_the_run_with_the_compensators_reason(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        pinned = made.policy.masking.model_copy(update={"minimum": 4})
        made.policy = made.policy.model_copy(update={"masking": pinned})
        for name in NAMES:
            await made.restart(name)
        made.let("west", silent("r1-train"))
        record = await ended(made, masked_job(participants={"quorum": 0.7}))
    assert record.state == "failed"
    assert "3 " in record.reason
    assert "4" in record.reason
    assert sums(made) == {}


@in_virtual_time
async def test_a_plain_answer_in_a_masked_step_is_a_failure_that_names_the_field(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        made.let("west", tells(TaskKind.TRAIN, examples=10))
        await completed(made, masked_job(participants={"quorum": 0.7}))
    [failed] = [event.data for event in made.events("task-answered") if event.data["outcome"] == "failed"]
    assert "in clear" in failed["reason"]
    assert sums(made)["r1-train"] == NAMES[:3]


@in_virtual_time
async def test_without_a_compensator_the_run_says_so(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        await made.processes["compensator"].crash()
        announced = Bucket(made.owner, COMPENSATORS, CompensatorRecord)
        [entry] = await announced.list()
        await announced.delete(**entry.tokens)
        record = await ended(made, masked_job())
    assert record.state == "failed"
    assert "no compensator has announced itself" in record.reason


NOISE = {"placement": "distributed", "mechanism": "discrete_laplace", "noise": "distributed-gamma"}


def noisy_job(*, quorum: float = 1.0, colluding: int = 0) -> dict[str, Any]:
    privacy = NOISE | {"noise_multiplier": 1.0, "colluding": colluding}
    return masked_job(weighting="uniform", participants={"quorum": quorum}, privacy=privacy)


PRIVATE = {"privacy": {"epsilon": 1000.0, "delta": 0.5}}


@in_virtual_time
async def test_sites_are_told_how_many_share_the_noise_and_the_step_waits_for_enough_of_them(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        await completed(made, noisy_job(quorum=0.5, colluding=1))
    assert {(task.privacy.active, task.privacy.attempt) for task in trainings(made) if task.privacy} == {(4, 1)}
    assert len(sums(made)["r1-train"]) >= 3


@pytest.mark.parametrize(
    "fault",
    [seals_nothing(TaskKind.TRAIN), refuses(TaskKind.TRAIN, reason="no")],
    ids=["seed refused", "dropped out with a share"],
)
def test_where_a_share_is_missing_those_who_are_left_share_the_noise_anew(tmp_path: Path, fault: Any) -> None:
    """Three of four are enough for the quorum, and too few for shares of four of which none may be missing."""
    clock = VirtualClock()

    async def story() -> None:
        async with hub_of(clock, tmp_path, *NAMES) as made:
            made.let("west", fault)
            await completed(made, noisy_job(quorum=0.7))
        shares = {task.step: (task.privacy.active, task.privacy.attempt) for task in trainings(made) if task.privacy}
        sessions = {task.masking.session: task.privacy for task in trainings(made) if task.masking}
        assert {session: (terms.active, terms.attempt) for session, terms in sessions.items() if terms} == {
            "r1-train": (4, 1), "r1-train-s2": (3, 2),
        }, shares  # fmt: skip
        assert sums(made) == {"r1-train-s2": NAMES[:3], "r1-evaluate": sums(made)["r1-evaluate"]}

    clock.run(story())


@pytest.mark.parametrize("mode", ["compensator", "pairwise"])
@in_virtual_time
async def test_the_same_job_again_is_summed_over_the_same_sites_to_the_same_bits(
    clock: VirtualClock, tmp_path: Path, mode: str
) -> None:
    """Also where the first run had to do a step again: the works of both are the same, and so are the sets."""
    async with hub_of(clock, tmp_path, *NAMES) as made:
        models = []
        for run in ("run000000001", "run000000002"):
            made.let("west", *([] if models else [silent("r1-evaluate")]))
            await made.submit(run, **masked_job(mode, rounds=2, participants={"quorum": 1.0, "deadline": 5.0}))
            record = await made.ended(run)
            assert (record.state, record.reason) == ("completed", "")
            models.append((record.model_digest, tuple(record.metrics.items())))
        assert models[0] == models[1]


@pytest.mark.parametrize("mode", ["compensator", "pairwise"])
@in_virtual_time
async def test_the_same_job_with_one_site_more_or_fewer_or_in_another_mode_is_refused_in_words(
    clock: VirtualClock, tmp_path: Path, mode: str
) -> None:
    other = "pairwise" if mode == "compensator" else "compensator"
    async with hub_of(clock, tmp_path, *MANY) as made:
        for number, (job, gone, why) in enumerate(
            [
                (masked_job(mode, **UNTOLD), (), ""),
                (masked_job(mode, **UNTOLD), ("west",), "members: "),
                (masked_job(other, **UNTOLD), (), "nobody else gets a sum of it"),
                (masked_job(mode, seed=8, **UNTOLD), ("west",), ""),
            ]
        ):
            for name in MANY:
                made.let(name, *([silent("r1-*")] if name in gone else []))
            job["participants"] |= {"quorum": 0.7, "retries": 0}
            await made.submit(f"run{number:09}", **job)
            record = await made.ended(f"run{number:09}")
            assert (record.state == "completed") is (not why), record.reason
            assert why in record.reason
