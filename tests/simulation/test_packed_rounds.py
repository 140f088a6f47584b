"""Rounds whose sites are known to have few examples together are summed in fewer bits: the same model, to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clocks import in_virtual_time
from hanse_datapod.worker.port import WorkOutcome, WorkRequest
from hanse_fabric.messages import TaskKind
from hanse_fabric.virtual_time import VirtualClock
from hanse_workflows.round_state import RoundState
from simulation.faults import silent
from simulation.league import League
from simulation.stories import completed, ended, hub_of
from simulation.test_masked_rounds import NAMES, UNTOLD, masked_job, trainings
from simulation.trainer import Trainer


def bits(made: League) -> dict[int, set[int]]:
    """Of the rings in which updates were asked for, by round."""
    asked: dict[int, set[int]] = {}
    for task in trainings(made):
        assert task.masking is not None
        asked.setdefault(task.round, set()).add(task.masking.ring.default.bits)
    return asked


async def played(
    clock: VirtualClock, folder: Path, mode: str, silent_at: str = "", **sums: Any
) -> tuple[dict[int, set[int]], bytes]:
    """(bits of the rounds, the model's) of a run of three rounds."""
    sections = {"mode": mode} | sums
    async with hub_of(clock, folder, *NAMES) as made:
        if silent_at:
            made.let("west", silent(silent_at))
        job = masked_job(mode, rounds=3, secure_aggregation=sections, participants={"quorum": 0.7}, **UNTOLD)
        await completed(made, job)
        return bits(made), (await made.model())["weight"].tobytes()


@pytest.mark.parametrize("mode", ["compensator", "pairwise"])
@in_virtual_time
async def test_from_the_second_round_on_there_are_40_bits_and_the_model_is_that_of_64(
    clock: VirtualClock, tmp_path: Path, mode: str
) -> None:
    known, model = await played(clock, tmp_path / "known", mode)
    assert known == {1: {48}, 2: {40}, 3: {40}}
    for other, sums in (("wide", {"bits": 64}), ("ring", {})):
        _, same = await played(clock, tmp_path / other, "ring" if other == "ring" else mode, **sums)
        assert same == model


@in_virtual_time
async def test_a_site_that_was_in_no_sum_yet_makes_the_next_round_wide(clock: VirtualClock, tmp_path: Path) -> None:
    known, model = await played(clock, tmp_path / "known", "compensator", "r1-train*")
    assert known == {1: {48}, 2: {48}, 3: {40}}
    _, same = await played(clock, tmp_path / "wide", "compensator", "r1-train*", bits=64)
    assert same == model


class Growing(Trainer):
    """A site whose data are other ones from round 3 on."""

    times = 1

    def _work(self, request: WorkRequest) -> WorkOutcome:
        outcome = super()._work(request)
        if request.kind is TaskKind.TRAIN and request.round > 2:
            return WorkOutcome(outcome.update, outcome.examples * self.times, outcome.metrics, outcome.seconds)
        return outcome


@pytest.mark.parametrize("times", [100, 1000])
@in_virtual_time
async def test_data_that_grow_in_a_run_have_room_and_far_too_many_end_it_in_words(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    monkeypatch.setattr(Growing, "times", times)
    async with hub_of(clock, tmp_path, *NAMES, worker=lambda clock, number: Growing(clock, number, 0.1)) as made:
        record = await ended(made, masked_job("compensator", rounds=3, **UNTOLD))
    if times == 100:
        assert (record.state, record.reason) == ("completed", "")
    else:
        assert record.state == "failed"
        assert "have together more examples than 62499" in record.reason


def test_who_is_known_to_have_how_many_examples() -> None:
    state = RoundState().weighing(("a", "b", "c"), 100)
    assert (state.weight_of(("a", "b")), state.weight_of(("a", "d"))) == (100, 0)
    assert state.weighing(("a", "b"), 60) == state  # of fewer it is no more
    grown = state.weighing(("b", "c", "d"), 50)
    assert grown.weight_of(("a", "b", "c", "d")) == 150
    assert grown.weighing(("a", "b", "c", "d"), 120).weight_of(("a",)) == 120
    assert state.weighing(("a", "b", "c", "d"), 0) == state  # nobody has told
