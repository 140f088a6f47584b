"""Runs whose sites add shares of correlated noise in masked sums: all answer in every round, and no kill draws anew."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clocks import in_virtual_time
from hanse_coordinator.records import RunRecord
from hanse_datapod.privacy import shared_turns
from hanse_datapod.worker.port import WorkOutcome, WorkRequest
from hanse_fabric.chain import read_chain
from hanse_fabric.messages import ReduceJob, Task, TaskKind
from hanse_fabric.subjects import JOB, TASK
from hanse_fabric.tensors.file import read_tensors
from hanse_fabric.virtual_time import VirtualClock
from hanse_privacy.correlated.shares import CorrelatedShare
from hanse_privacy.ledger import NAME
from hanse_privacy.noise.exact import Integers
from simulation.faults import silent
from simulation.league import League
from simulation.mortal import Mortal, mortal
from simulation.stories import Calm, completed, ended, hub_of, job_of, outcomes_when_killed
from simulation.trainer import Trainer

__all__ = ["mortal"]
NAMES = ("amber", "bell", "cape", "dune", "east", "fen")
SHARED = {
    "placement": "distributed", "mechanism": "dp_ftrl", "noise_multiplier": 2.0, "min_separation": 2,
    "matrix": {"name": "banded", "bands": 2},
}  # fmt: skip


def shared_job(mode: str = "compensator", **changes: Any) -> dict[str, Any]:
    half = {"minimum": 3, "fraction": 0.5, "deadline": 5.0, "retries": 1} | changes.pop("participants", {})
    body = {
        "rounds": 4, "weighting": "uniform", "privacy": SHARED, "participants": half, "evaluate": {"every": 0},
        "secure_aggregation": {"mode": mode, "bound": 16.0},
    }  # fmt: skip
    return job_of(**(body | changes))


def trainings(made: League) -> list[Task]:
    return [task for task in made.published(TASK, Task) if task.kind is TaskKind.TRAIN]


class Noted(Trainer):
    """A worker who notes its updates by round, and the first model."""

    updates: dict[int, list[np.ndarray]]
    first: np.ndarray

    async def work(self, request: WorkRequest, on_progress: Callable[[float, str], None]) -> WorkOutcome:
        outcome = await super().work(request, on_progress)
        if request.kind is TaskKind.TRAIN and request.model is not None:
            self.updates.setdefault(request.round, []).append(read_tensors(request.output)[1]["weight"].copy())
            if request.round == 1:
                Noted.first = read_tensors(request.model)[1]["weight"].copy()
        return outcome


def check_turns(made: League) -> None:
    """All members answer in every round, and those who train rest in the next."""
    trained: dict[int, set[str]] = {}
    for number in (1, 2, 3, 4):
        terms = [task.privacy for task in trainings(made) if task.round == number]
        assert {task.participant for task in trainings(made) if task.round == number} == set(NAMES)
        assert all(each is not None and each.members == NAMES for each in terms)
        (trained[number],) = {each.training for each in terms if each is not None}
        assert len(trained[number]) == 3
    assert all(not set(trained[number]) & set(trained[number + 1]) for number in (1, 2, 3))


@in_virtual_time
@pytest.mark.parametrize("mode", ["compensator", "pairwise"])
async def test_all_answer_in_every_round_and_without_noise_the_model_is_that_of_the_mean_over_those_who_train(
    clock: VirtualClock, tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_noise(_share: CorrelatedShare, count: int, _first: int) -> Integers:
        return np.zeros(count, dtype=np.int64)

    updates: dict[int, list[np.ndarray]] = {}
    monkeypatch.setattr(Noted, "updates", updates, raising=False)
    monkeypatch.setattr(CorrelatedShare, "steps", no_noise)
    async with hub_of(clock, tmp_path, *NAMES, worker=lambda clock, number: Noted(clock, number, 0.1)) as made:
        record = await completed(made, shared_job(mode))
        model = (await made.model())["weight"]
    assert record.round == 4
    check_turns(made)
    assert [len(updates[number]) for number in (1, 2, 3, 4)] == [3, 3, 3, 3]
    means = sum(np.mean(each, axis=0) for each in updates.values())
    # Rounded in four rounds at six members each to steps of a ring of 32 bits, whose room is for the noise, too.
    np.testing.assert_allclose(model - Noted.first, means, atol=4 * 6 * 2.0**-18)


@in_virtual_time
@pytest.mark.parametrize("mode", ["compensator", "pairwise"])
async def test_a_round_without_one_member_is_asked_again_and_never_summed_without_it(
    clock: VirtualClock, tmp_path: Path, mode: str
) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        made.let("dune", silent("r2-train"))
        record = await completed(made, shared_job(mode, rounds=3))
        sums = [job for job in made.published(JOB, ReduceJob) if "-reduce" in job.step]
    assert record.round == 3
    assert [(job.round, len(job.updates)) for job in sums] == [(1, 6), (2, 6), (3, 6)]
    assert {task.masking.session for task in trainings(made) if task.masking} > {"r2-train"}


@in_virtual_time
async def test_a_member_that_stays_away_ends_the_run_in_words(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        made.let("dune", *[silent(f"r2-train{again}") for again in ("", "-s2", "-s3", "-s4")])
        record = await ended(made, shared_job())
    assert record.state == "failed"
    assert "all 6 members share the noise of every round" in record.reason
    assert "dune" in record.reason
    assert "initial_model" in record.reason  # how its owner goes on


@pytest.fixture
def known_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run's sites have the same secrets: else no two runs could be compared."""
    monkeypatch.setattr(shared_turns, "_secret", lambda home: hashlib.sha256(home.name.encode()).digest())


@pytest.fixture(scope="module")
def calm() -> dict[str, list[Calm]]:
    """By mode the run in which nobody dies, once it was played."""
    return {"compensator": [], "pairwise": []}


def killed(folder: Path, process: str, mode: str, every: int, calm: list[Calm] | None = None) -> list[object]:
    """Of two rounds, for each death of a process: the models' digests, and each site's charge and turns."""

    def told(made: League, record: RunRecord) -> object:
        turns = {
            name: [
                (entry["what"], entry.get("round"), entry.get("rests"))
                for entry in read_chain(made.folder / name, NAME)
            ]
            for name in NAMES
        }
        for name, entries in turns.items():
            assert [what for what, _, _ in entries] == ["charge", "turn", "turn"], (name, entries)
            assert [number for _, number, _ in entries[1:]] == [1, 2]
        return record.model_digest, sorted(turns.items())

    return outcomes_when_killed(
        folder, NAMES, shared_job(mode, rounds=2), every=every, process=process, told=told,
        worker=lambda clock, number: Mortal(clock, number, 0.1), aggregators=1, calm=calm,
    )  # fmt: skip


@pytest.mark.usefixtures("mortal", "known_secrets")
@pytest.mark.parametrize(
    ("process", "mode", "every"),
    [
        ("coordinator-0", "compensator", 17), ("aggregator-0", "compensator", 5), ("compensator", "compensator", 2),
        ("registry", "compensator", 1), ("amber", "compensator", 2), ("dune", "compensator", 7),
        ("coordinator-0", "pairwise", 41), ("aggregator-0", "pairwise", 8),
        ("amber", "pairwise", 7), ("dune", "pairwise", 4),
    ],
)  # fmt: skip
def test_whoever_is_killed_at_any_step_the_model_has_the_same_bits_and_no_share_is_drawn_anew(
    calm: dict[str, list[Calm]], tmp_path: Path, process: str, mode: str, every: int
) -> None:
    outcomes = killed(tmp_path, process, mode, every, calm[mode])
    assert len(outcomes) > 1
    assert all(outcome == outcomes[0] for outcome in outcomes)


@pytest.mark.usefixtures("mortal", "known_secrets")
def test_control_a_site_that_draws_anew_after_a_kill_makes_another_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = itertools.count()
    steps = CorrelatedShare.steps

    def drawn_anew(share: CorrelatedShare, count: int, first: int) -> Integers:
        return steps(replace(share, key=next(draws).to_bytes(32, "big")), count, first)

    monkeypatch.setattr(CorrelatedShare, "steps", drawn_anew)
    models = {outcome[0] for outcome in killed(tmp_path, "amber", "compensator", 3)}  # type: ignore[index]
    assert len(models) > 1
