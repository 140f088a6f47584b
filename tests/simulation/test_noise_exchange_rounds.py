"""Rounds in which sites draw noise for each other first (`privacy.noise: oblivious`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clocks import in_virtual_time
from hanse_coordinator.records import RunRecord
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import TaskKind
from hanse_fabric.virtual_time import VirtualClock
from hanse_privacy.noise.exchange import NoiseSite
from simulation.faults import Fault, silent, tells
from simulation.league import PROJECT, League
from simulation.stories import answers, completed, ended, heard, hub_of, outcomes_when_killed
from simulation.test_masked_rounds import masked_job, sums

NAMES = ("east", "north", "south", "west")
PRIVACY = {"placement": "distributed", "mechanism": "discrete_laplace", "noise": "oblivious", "noise_multiplier": 1.0}


def job(quorum: float = 0.7) -> dict[str, Any]:
    return masked_job(weighting="uniform", privacy=PRIVACY, participants={"quorum": quorum})


def anothers_key(*at: Any) -> Fault:
    """A key for the exchange that is not signed with the key of its enrolment."""

    def advertised(task: Any, result: Any, _: SigningKey) -> dict[str, Any]:
        site = NoiseSite(SigningKey.create(), project=PROJECT, participant=result.participant)
        return {"payload": site.advertise(task.run, task.masking.session)}

    return Fault(at or (TaskKind.ADVERTISE,), changed=advertised)


def test_all_exchange_noise_once_and_train_whenever_the_coordinator_is_killed(tmp_path: Path) -> None:
    def told(made: League, record: RunRecord) -> object:
        assert record.state == "completed"
        assert set(answers(made).values()) == {1}
        return sums(made)["r1-train"]

    killed = outcomes_when_killed(tmp_path, NAMES, job(quorum=1.0), every=9, told=told, known=True)
    assert len(killed) > 3
    assert set(killed) == {NAMES}


@pytest.mark.parametrize("step", ["r1-train-noise-keys", "r1-train-noise"])
def test_who_takes_no_part_in_the_exchange_is_not_asked_to_train(tmp_path: Path, step: str) -> None:
    clock = VirtualClock()

    async def story() -> None:
        async with hub_of(clock, tmp_path, *NAMES) as made:
            made.let("west", silent(step))
            await completed(made, job())
        assert step in heard(made, "west")
        assert "r1-train" not in heard(made, "west")
        assert sums(made)["r1-train"] == NAMES[:3]

    clock.run(story())


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (anothers_key(), "tampered"),
        (tells(TaskKind.SHARE, payload=b"{}"), "noise for every other site"),
    ],
    ids=["key", "noise"],
)
def test_a_false_key_and_false_noise_are_told_by_name(tmp_path: Path, fault: Fault, told: str) -> None:
    clock = VirtualClock()

    async def story() -> None:
        async with hub_of(clock, tmp_path, *NAMES) as made:
            made.let("west", fault)
            await completed(made, job())
        [refused] = [event.data for event in made.events("refused")]
        assert refused["participant"] == "west"
        assert told in (refused["code"], refused["reason"]) or told in refused["reason"]
        assert sums(made)["r1-train"] == NAMES[:3]

    clock.run(story())


@in_virtual_time
async def test_too_few_who_exchange_end_the_run(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        for name in ("south", "west"):
            made.let(name, anothers_key())
        record = await ended(made, job())
    assert record.state == "failed"
    assert "participants can exchange noise, 3 are needed" in record.reason
