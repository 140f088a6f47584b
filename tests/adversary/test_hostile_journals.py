"""An owner with sites of its own, whose runs fill the room for journals: all projects share it, and journals are kept
for good, so that in the end nobody's run goes on. Or the room for open tasks, by large jobs that are at work at once.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from adversary.in_memory import tmp_path
from adversary.test_hostile_owner_fills import runs_alone_count
from clocks import HandClock, in_virtual_time
from hanse_coordinator.quotas import Quotas
from hanse_coordinator.records import RunRecord
from hanse_coordinator.runs.journal_room import JournalRoom
from hanse_fabric.bus.memory import MemoryBroker
from hanse_fabric.messages import TaskKind
from hanse_fabric.subjects import JOURNAL, TASK
from hanse_fabric.virtual_time import VirtualClock
from hub_api import JOB, START, replica
from simulation.faults import silent
from simulation.league import League
from simulation.stories import hub_of, job_of

__all__ = ["tmp_path"]
ALLOWED, ENDS, RUNS = 8_000, 2_000, 3
LONG = job_of(rounds=10)


async def conducted(made: League, *, one_by_one: bool) -> list[RunRecord]:
    """Long runs of the project, one after the other, each at a coordinator that has just been started, or at once."""
    names = [f"run00000000{number}" for number in range(RUNS)]
    ended = []
    for name in names:
        await made.submit(name, **LONG)
        if one_by_one:
            ended.append(await made.ended(name))
            await made.restart("coordinator-0")
    return ended or [await made.ended(name) for name in names]


def written(made: League) -> int:
    """Bytes of the project's journals."""
    return sum(len(message.data) for message in made.said(JOURNAL))


@pytest.mark.parametrize("one_by_one", [True, False])
@in_virtual_time
async def test_an_owner_does_not_fill_the_journals_by_many_long_runs(
    clock: VirtualClock, tmp_path: Path, one_by_one: bool
) -> None:
    async with hub_of(clock, tmp_path, "east", "north", "south", journals=ALLOWED) as made:
        records = await conducted(made, one_by_one=one_by_one)
        assert ALLOWED / 2 < written(made) < ALLOWED + RUNS * ENDS
        failed = [record for record in records if record.state == "failed"]
        assert failed
        assert all("quota journals of project triage" in record.reason for record in failed)
        assert all(record.journal is not None for record in records)


@pytest.mark.parametrize("one_by_one", [True, False])
@pytest.mark.control("test_an_owner_does_not_fill_the_journals_by_many_long_runs")
@in_virtual_time
async def test_control_where_journals_are_not_counted_they_are_as_long_as_the_owner_likes(
    clock: VirtualClock, tmp_path: Path, one_by_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JournalRoom, "take", lambda *_, **__: None)
    async with hub_of(clock, tmp_path, "east", "north", "south", journals=ALLOWED) as made:
        records = await conducted(made, one_by_one=one_by_one)
        assert {record.state for record in records} == {"completed"}
        assert written(made) > 2 * ALLOWED


LARGE = job_of(rounds=1, model={"name": "linear", "notes": "".join(map(str, range(2_000)))})
TASKS, JOBS = 40_000, 4


async def open_at_once(made: League) -> tuple[int, list[RunRecord]]:
    """Bytes of the open tasks of an owner whose sites answer none, while large jobs are at work; the runs' records."""
    sites = ("east", "north", "south")
    for site in sites:
        made.let(site, silent(TaskKind.TRAIN))
    names = [f"run00000000{number}" for number in range(JOBS)]
    for name in names:
        await made.submit(name, **LARGE)
    await made.clock.sleep(10.0)
    assert TASK.stream is not None
    there = sum(len(record.data) for record in made.broker.matching(TASK.stream, TASK.wildcard()))
    return there, [(await made.buckets.runs.require(project="triage", run=name)).value for name in names]


@in_virtual_time
async def test_an_owner_does_not_fill_the_open_tasks_by_large_jobs_at_once(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, "east", "north", "south", tasks=TASKS) as made:
        there, records = await open_at_once(made)
        assert TASKS / 4 < there <= TASKS
        failed = [record.reason for record in records if record.state == "failed"]
        assert 0 < len(failed) < JOBS
        assert all("quota tasks of project triage" in reason for reason in failed)
        # When others have ended there is room again.
        for site in ("east", "north", "south"):
            made.let(site)
        await clock.sleep(60.0)
        await made.submit("run000000009", **LARGE)
        assert (await made.ended("run000000009")).state == "completed"


@pytest.mark.control("test_an_owner_does_not_fill_the_open_tasks_by_large_jobs_at_once")
@in_virtual_time
async def test_control_where_open_tasks_are_not_counted_all_of_them_are_there(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, "east", "north", "south", tasks=0) as made:
        there, records = await open_at_once(made)
        assert there > 2 * TASKS
        assert "failed" not in {record.state for record in records}


async def next_run(folder: Path) -> tuple[tuple[int, str], int]:
    """What is answered to a further run of a project whose journals are full, and to one of another project."""
    async with replica(MemoryBroker(), folder, HandClock(START), quotas=Quotas(runs=100, journals=ALLOWED)) as api:
        owner = await api.make_owner("alpha", "beta")
        run = (await api.ok("POST", "/v1/projects/alpha/runs", owner, {"job": JOB}))["run"]
        ended = {"state": "completed", "journal": ALLOWED}
        await api.hub.buckets.runs.change(lambda old: old.model_copy(update=ended), project="alpha", run=run)
        api.clock.advance(61)  # it is measured anew once a minute
        status, answer = await api.call("POST", "/v1/projects/alpha/runs", owner, {"job": JOB})
        other, _ = await api.call("POST", "/v1/projects/beta/runs", owner, {"job": JOB})
        return (status, answer.get("error", {}).get("message", "")), other


async def test_a_project_whose_journals_are_full_begins_no_further_run_and_others_do(tmp_path: Path) -> None:
    (status, said), other = await next_run(tmp_path)
    assert status == 403
    assert f"quota journals of project alpha: {ALLOWED} are used" in said
    assert other == 201


@pytest.mark.control("test_a_project_whose_journals_are_full_begins_no_further_run_and_others_do")
async def test_control_where_records_of_journals_count_for_nothing_it_begins_as_many_as_it_likes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs_alone_count(monkeypatch)
    assert (await next_run(tmp_path))[0][0] == 201
