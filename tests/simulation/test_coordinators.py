"""What a run survives: its coordinator dying at any write, several coordinators, pauses, cancellation."""

from __future__ import annotations

from pathlib import Path

import pytest

from clocks import in_virtual_time
from hanse_coordinator.records import RunRecord
from hanse_coordinator.runs.journal import JournalEntry
from hanse_fabric.subjects import JOURNAL, TASK
from hanse_fabric.virtual_time import VirtualClock
from simulation.faults import silent
from simulation.league import League
from simulation.stories import answers, completed, hub_of, job_of, outcomes_when_killed

NAMES = ("north", "south")
WORKFLOWS = {"averaging": {"rounds": 2}, "cyclic transfer": {"rounds": 2, "workflow": "cyclic_weight_transfer"}}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_coordinator_killed_at_any_publication_changes_nothing_but_time(tmp_path: Path, name: str) -> None:
    def told(made: League, record: RunRecord) -> object:
        assert set(answers(made).values()) == {1}, "a site was asked twice"
        return record.model_digest, record.model_version, record.round

    every = 2 if name == "averaging" else 4
    outcomes = outcomes_when_killed(tmp_path, NAMES, job_of(**WORKFLOWS[name]), every=every, told=told)
    assert len(outcomes) > {"averaging": 40, "cyclic transfer": 20}[name]
    assert set(outcomes) == {outcomes[0]}


@in_virtual_time
async def test_another_coordinator_takes_over_when_the_lease_has_not_been_renewed(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, *NAMES, coordinators=2) as made:
        await made.submit(**job_of())
        await made.event("round-started", rounds=3)
        first, second = holders(made)[0], {"coordinator-0", "coordinator-1"} - set(holders(made))
        await made.processes[first].crash()
        assert (await made.ended()).state == "completed"
    assert holders(made) == [first, *second]


@in_virtual_time
async def test_of_two_coordinators_one_writes(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *NAMES, coordinators=2) as made:
        await completed(made, job_of(rounds=5))
    steps = [(entry.kind, entry.step) for entry in made.published(JOURNAL, JournalEntry) if entry.kind != "lease"]
    assert len(steps) == len(set(steps))
    assert set(answers(made).values()) == {1}


@in_virtual_time
async def test_a_stopped_coordinator_gives_its_runs_to_another_at_once(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *NAMES, coordinators=2, lease_ttl=100_000.0) as made:
        made.let("north", silent("r2-train"))
        await made.submit(**job_of())
        await made.event("task-answered", step="r2-train")
        await made.processes[holders(made)[0]].stop()
        made.let("north")
        await made.restart("north")
        await made.ended()
        assert clock.monotonic() < 1_000


@in_virtual_time
async def test_a_paused_run_stops_at_a_verb_and_goes_on_where_it_stood(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        await made.submit(**job_of(rounds=20))
        await made.until(lambda record: record.round == 2)
        await made.want("pause")
        paused = await made.until(lambda record: record.state == "paused")
        await clock.sleep(1_000)
        assert 2 <= paused.round == (await made.record()).round < 20
        await made.want("run")
        assert (await made.ended()).round == 20
    assert set(answers(made).values()) == {1}


@in_virtual_time
async def test_a_run_that_waits_for_participants_pauses_at_once_and_can_be_cancelled(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path) as made:
        await made.submit(**job_of())
        await made.want("pause")
        await made.until(lambda record: record.state == "paused")
        await made.want("cancel")
        assert (await made.ended()).state == "cancelled"


@in_virtual_time
async def test_a_cancelled_run_ends_and_takes_its_open_tasks_back(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        made.let("north", silent("r1-train"))
        await made.submit(**job_of())
        await made.event("task-answered", step="r1-train")
        assert made.on_bus(TASK)
        await made.want("cancel")
        assert (await made.ended()).state == "cancelled"
        assert made.on_bus(TASK) == []


def holders(made: League) -> list[str]:
    """Who has taken up the run, in order."""
    return [entry.body["holder"] for entry in made.published(JOURNAL, JournalEntry) if entry.kind == "lease"]
