"""Runs that are watched in a browser: a connection that is opened ahead ends by itself, a run that somebody comes back
to goes on after what was told, and the next person at the browser sees nothing of it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from console_browser import Watched, chromium
from console_served import Served, served
from hanse_fabric.messages import RunEvent
from hanse_fabric.subjects import EVENT
from hub_api import JOB, SCHEMA, Api

PEOPLE = ("ada", "bob")
OPEN, ENDED = "open", [f"ended-{number}" for number in range(6)]


async def tell(api: Api, run: str, kind: str, number: int = 0, **data: Any) -> None:
    event = RunEvent(project="triage", run=run, kind=kind, at=datetime.now(UTC), round=number, data=data)
    await api.hub.bus.publish(EVENT.of(project="triage", run=run), event.encode())


async def with_runs(api: Api) -> tuple[dict[str, str], dict[str, str]]:
    """A project with one run that goes on and some that have ended: ids by name; tokens of first links by person."""
    key = await api.make_key("operator")
    await api.ok("POST", "/v1/projects", key, {"name": "triage", "schema": SCHEMA})
    runs = {}
    for name in (OPEN, *ENDED):
        run = (await api.ok("POST", "/v1/projects/triage/runs", key, {"job": JOB | {"name": name}}))["run"]
        runs[name] = run
        state = "running" if name == OPEN else "completed"
        await tell(api, run, "state", state=state)
        await api.hub.buckets.runs.change(
            lambda old, state=state: old.model_copy(update={"state": state}), project="triage", run=run
        )
    people = [await api.ok("POST", "/v1/people", key, {"name": name, "role": "owner"}) for name in PEOPLE]
    return runs, {name: str(made["token"]) for name, made in zip(PEOPLE, people, strict=True)}


class Lines:
    """Which connections to a run's events a page has opened, and which have ended."""

    def __init__(self, page: Any) -> None:
        self.opened: list[Any] = []
        self.over: list[Any] = []
        page.on("request", lambda request: self.opened.append(request) if "/events?" in request.url else None)
        for way in ("requestfinished", "requestfailed"):
            page.on(way, lambda request: self.over.append(request))

    def of(self, run: str) -> list[Any]:
        return [request for request in self.opened if f"/runs/{run}/" in request.url]

    def last(self, run: str) -> Any:
        return self.of(run)[-1]


def after_of(request: Any) -> int:
    found = re.search(r"[?&]after=(\d+)", request.url)
    return int(found.group(1)) if found else 0


def until(page: Any, so: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait in the browser, whose events come only meanwhile."""
    end = time.monotonic() + seconds
    while not so():
        assert time.monotonic() < end, "it did not come about"
        page.wait_for_timeout(50)


Runs = tuple[dict[str, str], dict[str, str]]


@pytest.mark.timeout(240)
def test_a_watched_run_is_kept_for_who_comes_back_and_for_nobody_else(tmp_path: Path) -> None:
    with chromium() as browser, served(tmp_path / "store", with_runs) as console:
        watched = Watched(browser, console.url, None)
        page, lines = watched.page, Lines(watched.page)
        runs, tokens = console.made
        watched.enter(tokens["ada"])
        opened_ahead(watched, lines, console)
        gone_on_with(watched, lines, console)
        few_are_kept(watched, lines, runs)
        page.get_by_role("button", name="Sign out").click()
        page.get_by_role("heading", name="Sign in").wait_for()
        before = len(lines.of(runs[OPEN]))
        watched.enter(tokens["bob"])
        watched.go(f"/projects/triage/runs/{runs[OPEN]}")
        page.get_by_role("heading", name=OPEN).wait_for()
        until(page, lambda: len(lines.of(runs[OPEN])) > before)
        assert after_of(lines.last(runs[OPEN])) == 0, "what the first person was told is the second one's past, too"
        assert watched.errors == []


def opened_ahead(watched: Watched, lines: Lines, console: Served[Runs]) -> None:
    """Whoever points at a run has its connection opened; whoever does not click has it closed again."""
    run, page = console.made[0][OPEN], watched.page
    watched.go("/projects/triage/runs")
    link = page.get_by_role("link", name=OPEN, exact=True)
    link.hover()
    until(page, lambda: len(lines.of(run)) == 1)
    assert run not in page.url
    page.mouse.move(1, 1)
    until(page, lambda: lines.last(run) in lines.over)
    # Nor does a connection stay for each run that the pointer passes over.
    for name in (OPEN, ENDED[0], ENDED[1]):
        page.get_by_role("link", name=name, exact=True).hover()
        until(page, lambda name=name: bool(lines.of(console.made[0][name])))
    until(page, lambda: lines.last(run) in lines.over, 3.0)


def gone_on_with(watched: Watched, lines: Lines, console: Served[Runs]) -> None:
    """A run that is opened again is asked for what has happened since, and each of its lines stands there once."""
    run, page = console.made[0][OPEN], watched.page
    console.do(lambda api: tell(api, run, "round-started", 1, participants=["north"]))
    page.get_by_role("link", name=OPEN, exact=True).click()
    page.get_by_role("cell", name="north").wait_for()
    first = lines.last(run)
    page.go_back()
    until(page, lambda: first in lines.over, 3.0)
    console.do(lambda api: tell(api, run, "task-answered", 1, participant="north", outcome="done", examples=3))
    page.get_by_role("link", name=OPEN, exact=True).click()
    page.get_by_role("row").filter(has_text="north").filter(has_text="answered").wait_for()
    assert after_of(lines.last(run)) > 0
    expect(page.get_by_text("The run is running.")).to_have_count(1)
    page.go_back()


def few_are_kept(watched: Watched, lines: Lines, runs: dict[str, str]) -> None:
    """Of runs that have ended nothing is asked again, while they are remembered; of many, the last few are."""
    page = watched.page

    def look(name: str) -> None:
        watched.go(f"/projects/triage/runs/{runs[name]}")
        page.get_by_role("heading", name=name).wait_for()
        page.get_by_text("The run is completed.").wait_for()

    for name in ENDED:
        look(name)
    newest, oldest = len(lines.of(runs[ENDED[-1]])), len(lines.of(runs[ENDED[0]]))
    look(ENDED[-1])
    assert len(lines.of(runs[ENDED[-1]])) == newest
    look(ENDED[0])
    until(page, lambda: len(lines.of(runs[ENDED[0]])) > oldest)
