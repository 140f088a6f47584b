"""An owner who fills what all projects share: the records of runs, by large jobs that are cancelled at once, and the
audit, which is kept for good, by changes that change nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from clocks import HandClock
from hanse_coordinator.quotas import ProjectQuotas, Quotas, size_of
from hanse_coordinator.records import RunRecord
from hanse_fabric import records
from hanse_fabric.bus.memory import MemoryBroker
from hub_api import JOB, START, Api, replica

ALLOWED, CHANGES, TRIES = 100_000, 15, 20
LARGE = JOB | {"model": {"name": "mlp", "hidden": [8] * 5_000}}


@asynccontextmanager
async def hub_with(folder: Path, quotas: Quotas) -> AsyncIterator[tuple[Api, str]]:
    """A hub with an owner's key, and two projects."""
    async with replica(MemoryBroker(), folder, HandClock(START), quotas=quotas) as api:
        owner = await api.make_owner("alpha", "beta")
        yield api, owner


async def recorded(folder: Path) -> tuple[int, int]:
    """Bytes, as they are read, of the runs' records of an owner who submits large jobs and cancels them; and what
    another project is answered then."""
    async with hub_with(folder, Quotas(runs=100, records=ALLOWED)) as (api, owner):
        for _ in range(TRIES):
            status, run = await api.call("POST", "/v1/projects/alpha/runs", owner, {"job": LARGE})
            if status == 201:
                await api.ok("POST", f"/v1/projects/alpha/runs/{run['run']}/cancel", owner)
        there = await api.hub.buckets.runs.list(project="alpha")
        other = await api.call("POST", "/v1/projects/beta/runs", owner, {"job": JOB})
        return sum(size_of(entry.value) for entry in there), other[0]


async def test_an_owner_does_not_fill_the_records_of_runs_by_large_jobs_that_are_cancelled(tmp_path: Path) -> None:
    size, other = await recorded(tmp_path)
    assert 0 < size <= 1.1 * ALLOWED
    assert other == 201


def runs_alone_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else a project has used does not keep it from further runs."""
    counted = ProjectQuotas.take_run

    async def taken(quotas: ProjectQuotas, run: RunRecord) -> None:
        quotas.quotas = Quotas(runs=100)
        await counted(quotas, run)

    monkeypatch.setattr(ProjectQuotas, "take_run", taken)


@pytest.mark.control("test_an_owner_does_not_fill_the_records_of_runs_by_large_jobs_that_are_cancelled")
async def test_control_where_runs_that_have_ended_count_for_nothing_their_records_are_as_many_as_the_owner_likes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs_alone_count(monkeypatch)
    size, _ = await recorded(tmp_path)
    assert size > 2 * ALLOWED


async def changed(folder: Path) -> tuple[int, int]:
    """Entries of the audit of an owner who says the same again and again; and what another project is answered then."""
    async with hub_with(folder, Quotas(changes_a_day=CHANGES)) as (api, owner):
        for _ in range(TRIES):
            await api.call("POST", "/v1/projects/alpha/absence", owner, {"days": 30})
        audit = (await api.ok("GET", "/v1/projects/alpha/audit?action=project.absence", owner))["events"]
        other, _ = await api.call("POST", "/v1/projects/beta/absence", owner, {"days": 30})
        api.clock.advance(86_400)
        assert (await api.call("POST", "/v1/projects/alpha/absence", owner, {"days": 30}))[0] == 200, "the day after"
        return len(audit), other


async def test_an_owner_does_not_fill_the_audit_by_saying_the_same_again_and_again(tmp_path: Path) -> None:
    assert await changed(tmp_path) == (CHANGES, 200)


@pytest.mark.control("test_an_owner_does_not_fill_the_audit_by_saying_the_same_again_and_again")
async def test_control_where_changes_are_not_counted_each_is_in_the_audit_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProjectQuotas, "take_change", lambda *_, **__: None)
    assert await changed(tmp_path) == (TRIES, 200)


async def turns(folder: Path) -> int:
    """How often others have their turn while a project's many runs are listed."""
    async with hub_with(folder, Quotas()) as (api, owner):
        for _ in range(TRIES):
            await api.ok("POST", "/v1/projects/alpha/runs", owner, {"job": JOB})
        taken = 0

        async def others() -> None:
            nonlocal taken
            while True:
                taken += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(others())
        await api.hub.buckets.runs.list(project="alpha")
        beside.cancel()
        return taken


async def test_a_project_with_many_large_runs_holds_nobody_up_while_they_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_AT_A_TIME_S", 0.0)
    assert await turns(tmp_path) >= TRIES


@pytest.mark.control("test_a_project_with_many_large_runs_holds_nobody_up_while_they_are_listed")
async def test_control_where_all_are_read_in_one_go_nobody_else_has_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_AT_A_TIME_S", float("inf"))
    assert await turns(tmp_path) < TRIES
