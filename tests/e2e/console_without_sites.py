"""The console in a real browser before a hub's API that has no sites.

A study's results are looked at, with plots that zoom and hits that are searched. Runs are watched: a connection that is
opened ahead ends by itself, a run that somebody comes back to goes on after what was told, and the next person at the
browser sees nothing of it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
from playwright.sync_api import expect

from console_browser import Watched
from console_served import Served
from hanse_fabric.messages import RunEvent
from hanse_fabric.subjects import EVENT
from hanse_fabric.tensors.file import encode_tensors, layout_like
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_genomics.files import text
from hanse_genomics.results.table import summary_arrays
from hub_api import JOB, SCHEMA, Api

SNPS, HIT = 40_000, 12_345
STUDY = {"workflow": "association_study", "study": {"test": "logistic", "covariates": ["AGE"]}, "name": "lungs"}
SUMMARY = {
    "study": STUDY["study"], "lambda": 1.013, "samples": {"all": 2050, "tested": 2047, "cases": 927, "controls": 1120},
    "snps": {"common": SNPS + 12, "tested": SNPS, "left_out": 12}, "reasons": {"monomorphic": 12},
    "cohorts": {"north": {"snps": 60_000, "duplicates": 3}, "south": {"snps": 58_000, "duplicates": 0}},
    "notes": ["rs7: A/C in north, A/G in <img src=x onerror='window.owned = 1'>south"],
}  # fmt: skip

PEOPLE = ("ada", "bob")
OPEN, ENDED = "open", [f"ended-{number}" for number in range(6)]


Runs = tuple[dict[str, str], dict[str, str]]
"""Ids by name; tokens of first links by person."""


async def with_all(api: Api) -> Runs:
    key = await api.make_key("operator")
    await with_study(api, key)
    runs = await with_runs(api, key)
    people = [await api.ok("POST", "/v1/people", key, {"name": name, "role": "owner"}) for name in PEOPLE]
    return runs, {name: str(made["token"]) for name, made in zip(PEOPLE, people, strict=True)}


async def with_study(api: Api, key: str) -> None:
    """A project with a study that has completed."""
    schema = {"kind": "genotypes", "phenotypes": ["TRAIT"], "covariates": ["AGE"]}
    await api.ok("POST", "/v1/projects", key, {"name": "gwas", "schema": schema})
    run = (await api.ok("POST", "/v1/projects/gwas/runs", key, {"job": STUDY}))["run"]
    draw = np.random.default_rng(3)
    log10_p = np.log10(draw.random(SNPS))
    log10_p[HIT - 4 : HIT + 5] = [-5, -6, -7, -9, -11.5, -8, -7, -6, -5]
    each = SNPS // 22 + 1
    results: dict[str, np.ndarray] = {
        "chromosome": (1 + np.arange(SNPS) // each).astype(np.int8),
        "position": (np.arange(SNPS) % each * 40_000 + 1).astype(np.int64),
        "name": text.pack(f"rs{number}" for number in range(SNPS)),
        "first": text.pack(["A"] * SNPS), "second": text.pack(["G"] * SNPS), "minor": np.zeros(SNPS, np.uint8),
        "reason": np.zeros(SNPS, np.uint8), "p": 10.0**log10_p, "log10_p": log10_p, "beta": draw.normal(0, 0.2, SNPS),
        "se": np.full(SNPS, 0.05), "maf": draw.uniform(0.05, 0.5, SNPS),
    }  # fmt: skip
    outputs = {}
    for name, arrays in (("results", results), ("summary", summary_arrays(SUMMARY))):
        data = bytes(encode_tensors(layout_like(arrays), arrays))
        ref = ref_of_bytes(data, key=f"models/gwas/{run}/outputs/{name}")
        api.hub.store.put(ref.key or "", data)
        outputs[name] = ref.model_dump(mode="json")
    done = {"outputs": outputs, "state": "completed"}
    await api.hub.buckets.runs.change(lambda old: old.model_copy(update=done), project="gwas", run=run)


def study_looked_at(watched: Watched) -> None:
    """A study's results, from the whole genome to one SNP."""
    page = watched.page
    watched.go("/projects/gwas")
    page.get_by_role("link", name="lungs").click()
    page.get_by_role("link", name="Manhattan plot").click()
    page.get_by_role("img", name=re.compile("Manhattan plot of 40,000 SNPs: 3 of all are significant")).wait_for()
    page.get_by_role("img", name=re.compile("Quantile-quantile plot.*1.013")).wait_for()
    best = page.get_by_role("region", name="Hits").get_by_role("row").nth(1)
    assert best.get_by_role("cell").nth(1).inner_text() == f"rs{HIT}"
    assert best.get_by_role("cell").last.locator("xpath=preceding-sibling::*[1]").inner_text() == "3.16e-12"
    watched.look("study")

    # A dot under the pointer says what it is; of the other plot most lie on the line, as nothing matters there.
    quantiles = page.get_by_role("img", name=re.compile("Quantile-quantile plot"))
    quantiles.scroll_into_view_if_needed()
    box = quantiles.locator(".u-over").bounding_box()
    assert box is not None
    said = quantiles.locator("xpath=..").locator(".pointed")
    steep = np.log10(SNPS + 1) * 1.03 / (11.5 * 1.05)  # of the line, as the axes are scaled
    for share in (0.05, 0.1, 0.3):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] * (1 - share * steep))
        expected, observed = map(float, re.findall(r"[0-9.]+", said.inner_text()))
        assert abs(expected - observed) < 0.2

    # From the whole genome to a part of it by dragging, and back.
    page.locator(".chart .u-over").first.scroll_into_view_if_needed()
    plot = page.locator(".chart .u-over").first.bounding_box()
    assert plot is not None
    page.mouse.move(plot["x"] + 5, plot["y"] + 50)
    page.mouse.down()
    page.mouse.move(plot["x"] + 30, plot["y"] + 60, steps=4)
    page.mouse.up()
    page.get_by_role("img", name=re.compile("of chromosome 1:")).wait_for()
    page.get_by_role("button", name="All", exact=True).first.click()
    page.get_by_role("img", name=re.compile("Manhattan plot of 40,000 SNPs:")).wait_for()
    best.get_by_role("button", name="Show").click()
    page.get_by_text(re.compile("All [0-9]+ SNPs of this part are drawn")).wait_for()

    page.get_by_label("Search").fill("RS1234")
    page.get_by_text("1 to 11 of 11").wait_for()
    page.get_by_label("Search").fill("nothing")
    page.get_by_text("No SNP is called so").wait_for()
    page.get_by_label("Search").fill("7:1-200000")
    page.get_by_text("1 to 5 of 5").wait_for()
    expect(page.get_by_role("region", name="SNPs").get_by_text("left out: monomorphic")).to_have_count(1)
    expect(page.get_by_text("<img src=x")).to_have_count(1)
    assert page.evaluate("window.owned") is None
    assert watched.errors == []


async def tell(api: Api, run: str, kind: str, number: int = 0, **data: Any) -> None:
    event = RunEvent(project="triage", run=run, kind=kind, at=datetime.now(UTC), round=number, data=data)
    await api.hub.bus.publish(EVENT.of(project="triage", run=run), event.encode())


async def with_runs(api: Api, key: str) -> dict[str, str]:
    """A project with one run that goes on and some that have ended: their ids by name."""
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
    return runs


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


def run_kept_for_who_comes_back(watched: Watched, console: Served[Runs]) -> None:
    """A watched run is kept for who comes back, and for nobody else: the next person signs in at the end."""
    page, lines = watched.page, Lines(watched.page)
    runs, tokens = console.made
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
