"""Runs with noise that is correlated over their rounds: sites rest between their turns, and a kill changes no noise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clocks import in_virtual_time
from hanse_coordinator.records import RunRecord
from hanse_coordinator.verbs.durable import DurableVerbs
from hanse_fabric.chain import read_chain
from hanse_fabric.messages import Reduced, Task, TaskKind
from hanse_fabric.subjects import REDUCED, TASK
from hanse_fabric.virtual_time import VirtualClock
from hanse_learning.server.private_mean import PrivateMean
from hanse_privacy.correlated.matrix import round_name
from hanse_privacy.ledger import NAME
from hanse_privacy.noise.source import NoiseSource
from simulation.league import League
from simulation.mortal import Mortal, mortal
from simulation.stories import Calm, completed, ended, hub_of, job_of, outcomes_when_killed, reductions, told_to_people

__all__ = ["mortal"]
NAMES = ("east", "north", "south", "west")
PRIVATE = {
    "placement": "central", "mechanism": "dp_ftrl", "noise_multiplier": 2.0, "min_separation": 2,
    "matrix": {"name": "banded", "bands": 2},
}  # fmt: skip


def correlated_job(**changes: Any) -> dict[str, Any]:
    half = {"minimum": 2, "fraction": 0.5}
    return job_of(**({"rounds": 4, "weighting": "uniform", "privacy": PRIVATE, "participants": half} | changes))


def trained(made: League) -> dict[int, set[str]]:
    """Who was asked to train, by round."""
    asked: dict[int, set[str]] = {}
    for task in made.published(TASK, Task):
        if task.kind is TaskKind.TRAIN:
            asked.setdefault(task.round, set()).add(task.participant)
    return asked


@in_virtual_time
async def test_who_trained_in_a_round_rests_in_the_next_and_aggregators_are_told_of_all_rounds_before(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        record = await completed(made, correlated_job())
    who = trained(made)
    assert [len(who[number]) for number in (1, 2, 3, 4)] == [2, 2, 2, 2]
    for number in (1, 2, 3):
        assert not who[number] & who[number + 1]
    # Aggregators have one seed for the run, and the names of all rounds before.
    asked, names = reductions(made), trained(made)
    (seed,) = {reduction["seed"] for reduction in asked.values()}
    told = told_to_people(made, record)
    assert seed not in told
    for number, reduction in asked.items():
        assert list(reduction["before"]) == [round_name(at, names[at]) for at in range(1, number)]


@in_virtual_time
async def test_a_run_ends_where_too_few_have_rested(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *NAMES[:3]) as made:
        record = await ended(made, correlated_job())
    assert record.state == "failed"
    assert "1 participants of those present may take part again" in record.reason


def turns_of(made: League, site: str) -> list[tuple[str, int | None]]:
    """What a site's ledger says: its charge, and the rounds of its turns."""
    return [(entry["what"], entry.get("round")) for entry in read_chain(made.folder / site, NAME)]


@pytest.fixture
def one_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """All runs' noise is made of the same secret: else no two of them could be compared."""
    monkeypatch.setattr(DurableVerbs, "secret", lambda _, count: bytes(range(count)))


@pytest.fixture(scope="module")
def calm() -> list[Calm]:
    """The run in which nobody dies, once it was played."""
    return []


def killed(
    folder: Path, process: str, told: Callable[[League, RunRecord], object], calm: list[Calm] | None = None
) -> list[object]:
    """Of four rounds, for each kill of a process: see `outcomes_when_killed`. No other aggregator does its work."""
    every = {"coordinator-0": 11, "aggregator-0": 2}.get(process, 3)
    return outcomes_when_killed(
        folder, NAMES, correlated_job(), every=every, process=process, told=told,
        worker=lambda clock, number: Mortal(clock, number, 0.1), aggregators=1, calm=calm,
    )  # fmt: skip


@pytest.mark.usefixtures("mortal", "one_secret")
@pytest.mark.parametrize("process", ["coordinator-0", "aggregator-0", "registry", "south", "west"])
def test_whoever_is_killed_at_any_step_the_models_are_the_same_to_the_bit_and_sites_are_charged_once(
    calm: list[Calm], tmp_path: Path, process: str
) -> None:
    def told(made: League, record: RunRecord) -> object:
        made_of: dict[str, set[str]] = {}
        for reduced in made.published(REDUCED, Reduced):
            made_of.setdefault(reduced.step, set()).add(reduced.outputs["model"].digest)
        for step, digests in made_of.items():
            assert len(digests) == 1, f"{step} was made in two ways, whose difference is noise alone"
        for site in NAMES:
            asked = turns_of(made, site)
            assert asked in [[("charge", None), ("turn", first), ("turn", first + 2)] for first in (1, 2)], asked
        assert len(reductions(made)) == record.round == 4
        return sorted((step, *digests) for step, digests in made_of.items()), record.model_digest

    outcomes = killed(tmp_path, process, told, calm)
    assert len(outcomes) > 5
    assert all(outcome == outcomes[0] for outcome in outcomes)


@pytest.mark.usefixtures("mortal", "one_secret")
def test_control_an_aggregator_that_draws_anew_after_a_kill_makes_another_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = [0]

    def next_draw(*_: object) -> NoiseSource:
        draws[0] += 1
        return NoiseSource(draws[0].to_bytes(32, "big"))

    def told(_: League, record: RunRecord) -> object:
        draws[0] = 0
        return record.model_digest

    monkeypatch.setattr(PrivateMean, "_noise_of", next_draw)
    undisturbed, *disturbed = killed(tmp_path, "aggregator-0", told)
    assert any(digest != undisturbed for digest in disturbed)
    assert undisturbed in disturbed  # those whose kill came between two reductions
