"""A site that uses up what its project may change in a day, by fetching what a study has made: then nobody steers a run
of the project, or ends the membership of that very site. And an owner whose own script has used it up.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from clocks import HandClock
from hanse_coordinator.api import hub
from hanse_coordinator.quotas import ProjectQuotas, Quotas
from hanse_fabric.allowance import Allowance
from hanse_fabric.bus.memory import MemoryBroker
from hanse_fabric.tensors.refs import ref_of_bytes
from hub_api import JOB, START, Api, Site, registry_on, replica

CHANGES, FETCHES, TRIES = 15, 5, 20
BASE = "/v1/projects/alpha"


@asynccontextmanager
async def league(folder: Path) -> AsyncIterator[tuple[Api, str, str, str]]:
    """A hub with a run that has an output; keys of its owner and of a site; the run."""
    broker, clock = MemoryBroker(), HandClock(START)
    async with (
        registry_on(broker, folder, clock),
        replica(broker, folder, clock, quotas=Quotas(changes_a_day=CHANGES)) as api,
    ):
        owner, site = await api.make_owner("alpha"), Site()
        token = (await api.ok("POST", f"{BASE}/invitations", owner, {"participant": "north"}))["token"]
        key = (await api.ok("POST", "/v1/join", body=await site.body(api, token)))["api_key"]
        run = (await api.ok("POST", f"{BASE}/runs", owner, {"job": JOB}))["run"]
        ref = ref_of_bytes(b"abc", key=f"models/alpha/{run}/outputs/results")
        api.hub.store.put(str(ref.key), b"abc")
        made = {"outputs": {"results": ref.model_dump(mode="json")}}
        await api.hub.buckets.runs.change(lambda old: old.model_copy(update=made), project="alpha", run=run)
        yield api, owner, key, run


async def owner_is_answered(folder: Path, *, counted: bool = False) -> set[int]:
    """How an owner is answered who steers a run and ends a site's membership, after that site has fetched an output,
    and what there is not, again and again."""
    async with league(folder) as (api, owner, site, run):
        if counted:
            taken = api.hub.downloads.take

            def take(who: object) -> bool:
                api.hub.quotas.take_change("alpha")
                return taken(("", who))

            api.hub.downloads.take = take  # type: ignore[method-assign]
        for name in ("results", "nothing"):
            for _ in range(TRIES):
                await api.call("GET", f"{BASE}/runs/{run}/outputs/{name}", site)
        steps = (f"{BASE}/runs/{run}/pause", f"{BASE}/absence")
        return {
            (await api.call("POST", path, owner, {"days": 3} if path.endswith("absence") else None))[0]
            for path in steps
        }


async def test_a_site_does_not_use_up_what_its_project_may_change(tmp_path: Path) -> None:
    assert await owner_is_answered(tmp_path) == {200}


@pytest.mark.control("test_a_site_does_not_use_up_what_its_project_may_change")
async def test_control_where_what_a_site_fetches_counts_as_a_change_its_owner_changes_nothing_more(
    tmp_path: Path,
) -> None:
    assert await owner_is_answered(tmp_path, counted=True) == {403}


async def told(folder: Path) -> int:
    """Entries of the audit of a site that fetches one output again and again."""
    async with league(folder) as (api, owner, site, run):
        for _ in range(FETCHES + TRIES):
            await api.call("GET", f"{BASE}/runs/{run}/outputs/results", site)
        return len((await api.ok("GET", f"{BASE}/audit?action=output.download&limit=1000", owner))["events"])


async def test_a_site_does_not_fill_the_audit_by_fetching_an_output_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "DOWNLOADS_AT_ONCE", FETCHES)
    assert await told(tmp_path) == FETCHES


@pytest.mark.control("test_a_site_does_not_fill_the_audit_by_fetching_an_output_again_and_again")
async def test_control_where_downloads_are_not_counted_each_is_in_the_audit_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Allowance, "take", lambda *_: True)
    assert await told(tmp_path) == FETCHES + TRIES


async def ended(folder: Path) -> list[int]:
    """How an owner is answered who ends a run and a site's membership, after a script has changed as much as it can."""
    async with league(folder) as (api, owner, _, run):
        for _ in range(TRIES):
            await api.call("POST", f"{BASE}/absence", owner, {"days": 30})
        ends = (f"{BASE}/runs/{run}/cancel", f"{BASE}/participants/north/revoke")
        return [(await api.call("POST", path, owner))[0] for path in ends]


async def test_an_owner_who_may_change_nothing_more_ends_runs_and_memberships_all_the_same(tmp_path: Path) -> None:
    assert await ended(tmp_path) == [200, 200]


@pytest.mark.control("test_an_owner_who_may_change_nothing_more_ends_runs_and_memberships_all_the_same")
async def test_control_where_what_ends_something_is_a_change_as_any_other_a_bad_site_stays_for_the_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = ProjectQuotas.take_change
    monkeypatch.setattr(ProjectQuotas, "take_change", lambda quotas, project, **_: counted(quotas, project))
    assert await ended(tmp_path) == [403, 403]
