"""An owner who submits many jobs, or one of many rounds, to find one person's value, with an honest hub and masked sums
of evaluations.

A linear model may say of everybody whether they are older than it likes. Its accuracy over all sites is a number of
people, and where nobody is older, the threshold has passed the oldest of all: one person's age, to the year, after as
many jobs as the range has bits. Or training moves the threshold, by a first model and a learning rate that the owner
chooses, and one job asks for as many thresholds as it has rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adversary.in_memory import tmp_path
from clocks import in_virtual_time
from hanse_datapod.home.runs import Runs
from hanse_datapod.policy.limits import AskingPolicy
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.worker.port import WorkOutcome, WorkRequest
from hanse_fabric.clock import Clock
from hanse_fabric.messages import TaskKind
from hanse_fabric.tensors.file import encode_tensors, layout_like, read_tensors
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_fabric.virtual_time import VirtualClock
from simulation.league import PROJECT, League
from simulation.stories import hub_of, job_of
from simulation.trainer import Trainer, write

__all__ = ["tmp_path"]
SITES = ["site-0", "site-1", "site-2"]
OLDEST, RANGE, A_DAY = 97, (64, 128), 3
LIMITED: dict[str, Any] = {"asking": {"runs": A_DAY}}
BEGIN = 112
ROUNDS, EVALUATIONS = 12, 8
PARTS = 64
"""In each round the threshold, which begins above all, falls by one part of so many: it passes the oldest of all some
rounds before the last."""
FEW_EVALUATIONS: dict[str, Any] = {"asking": {"runs": A_DAY, "evaluations": EVALUATIONS}}


class Ages(Trainer):
    """A linear classifier of people by their ages, all of whom are of class 1; one site has the oldest of all."""

    def __init__(self, clock: Clock, site: int) -> None:
        super().__init__(clock, site, 0.1)
        self.ages = np.append(np.arange(20, 80) + site / 4, [OLDEST] if site == 1 else [])

    async def work(self, request: WorkRequest, on_progress: Callable[[float, str], None]) -> WorkOutcome:
        assert request.model is not None
        weight, bias = read_tensors(request.model)[1]["weight"].astype(np.float64)
        if request.kind is TaskKind.TRAIN:
            step = np.array([self.ages.mean(), 1.0]) * float(request.config["train"]["optimizer"]["lr"])
            write(request, step)
        found = {"accuracy": float(np.mean(self.ages * weight + bias > 0))}
        return WorkOutcome(request.output if request.kind is TaskKind.TRAIN else None, len(self.ages), found, 0.1)


async def anybody_is_older(made: League, run: int, age: float) -> tuple[bool, str]:
    """Whether anybody at any site is, by a job's evaluation; or why it failed."""
    arrays = {"weight": np.array([1.0, -age], np.float32)}
    file = encode_tensors(layout_like(arrays), arrays)
    digest, name = ref_of_bytes(file).digest, f"run{run:09}"
    made.store.put(f"models/{PROJECT}/{digest}", file)
    train = {"steps": 1, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 1e-6}}
    await made.submit(
        name, **job_of(rounds=1, initial_model=digest, train=train, seed=run, participants={"minimum": 3},
                       secure_aggregation={"mode": "compensator"})
    )  # fmt: skip
    record = await made.ended(name)
    return record.metrics.get("accuracy", 0.0) > 0.5 / 200, "" if record.state == "completed" else record.reason


async def oldest(made: League) -> tuple[int, int, str]:
    """(at least, below) how old the oldest of all is, and why a job failed."""
    low, high, run = *RANGE, 1
    while high - low > 1:
        middle = (low + high) // 2
        older, why = await anybody_is_older(made, run, middle - 0.5)
        if why:
            return low, high, why
        low, high, run = (middle, high, run + 1) if older else (low, middle, run + 1)
    return low, high, ""


@in_virtual_time
async def test_so_many_jobs_of_one_round_a_day_do_not_find_one_persons_age(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *SITES, worker=Ages, rules=LIMITED) as made:
        low, high, why = await oldest(made)
        assert high - low == (RANGE[1] - RANGE[0]) >> A_DAY
        assert "asking.runs" in why


@in_virtual_time
@pytest.mark.control("test_so_many_jobs_of_one_round_a_day_do_not_find_one_persons_age")
async def test_control_without_the_limit_a_day_is_enough(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Runs, "begin", lambda *_, **__: None)
    async with hub_of(clock, tmp_path, *SITES, worker=Ages, rules=LIMITED) as made:
        assert await oldest(made) == (OLDEST, OLDEST + 1, "")


async def walked(made: League, every: int = 1) -> tuple[float, float, str]:
    """(above, at most) how old the oldest of all is, by one job whose threshold falls each round; and why it failed.

    Args:
        every: after so many rounds its model is evaluated; of other rounds what training tells is read.
    """
    ages = np.concatenate([Ages(made.clock, number).ages for number in range(len(SITES))])
    begin, rate = float(BEGIN), 1 / (PARTS * ages.mean())
    arrays = {"weight": np.array([1.0, -begin], np.float32)}
    file = encode_tensors(layout_like(arrays), arrays)
    digest = ref_of_bytes(file).digest
    made.store.put(f"models/{PROJECT}/{digest}", file)
    train = {"steps": 1, "batch_size": 16, "optimizer": {"name": "sgd", "lr": rate}}
    await made.submit(
        **job_of(rounds=ROUNDS, initial_model=digest, train=train, evaluate={"every": every},
                 participants={"minimum": 3}, secure_aggregation={"mode": "compensator"})
    )  # fmt: skip
    record = await made.ended()
    high, why = begin, "" if record.state == "completed" else record.reason
    for event in made.events("round-finished"):
        number, found = event.round or 0, event.data["metrics"]
        # What training tells is of the model that the round began with.
        moved = rate * (number if "accuracy" in found else number - 1)
        threshold = (begin - moved) / (1 + moved * ages.mean())
        if found.get("accuracy", found.get("train_accuracy", 0.0)) > 0.5 / len(ages):
            return threshold, high, why
        high = threshold
    return 0.0, high, why


@in_virtual_time
async def test_one_job_of_many_rounds_does_not_find_one_persons_age(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *SITES, worker=Ages, rules=FEW_EVALUATIONS) as made:
        above, at_most, why = await walked(made)
    assert above == 0
    # Each round tells of two models: that which it begins with, and that which it makes.
    assert at_most == pytest.approx(BEGIN / (1 + EVALUATIONS // 2 / PARTS), rel=0.01)
    assert "asking.evaluations" in why


@in_virtual_time
async def test_one_job_that_evaluates_nothing_does_not_find_one_persons_age_by_what_training_tells(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, *SITES, worker=Ages, rules=FEW_EVALUATIONS) as made:
        above, at_most, why = await walked(made, every=ROUNDS)
    assert above == 0
    assert at_most == pytest.approx(BEGIN / (1 + (EVALUATIONS - 1) / PARTS), rel=0.01)
    assert "asking.evaluations" in why


@in_virtual_time
@pytest.mark.control("test_one_job_that_evaluates_nothing_does_not_find_one_persons_age_by_what_training_tells")
async def test_control_where_evaluations_alone_are_counted_what_training_tells_finds_it(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Policy, "tells_training", lambda *_: False)
    async with hub_of(clock, tmp_path, *SITES, worker=Ages, rules=FEW_EVALUATIONS) as made:
        above, at_most, why = await walked(made, every=ROUNDS)
    assert not why
    assert above < OLDEST <= at_most < above + 1.5


@in_virtual_time
@pytest.mark.control("test_one_job_of_many_rounds_does_not_find_one_persons_age")
async def test_control_with_a_limit_of_jobs_alone_one_of_many_rounds_finds_it(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AskingPolicy, "most_evaluations", lambda *_, **__: None)
    async with hub_of(clock, tmp_path, *SITES, worker=Ages, rules=FEW_EVALUATIONS) as made:
        above, at_most, why = await walked(made)
    assert not why
    assert above < OLDEST <= at_most < above + 1.5
