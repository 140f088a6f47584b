"""What the console costs its reader, in a real Chromium before a real hub: `make bench-console [ARGS=--json]`.

The run has 1,000 rounds and 100 sites: a recorded stream of some hundred thousand events, which the hub serves while
the browser watches. Nobody trains. Then:

- `first_paint_s`: from the address of that run's page to the first content on the screen, of an empty cache; median.
- `shown_s`: until its curve and all its sites are there.
- `interaction_p95_ms`: from a click, or a move of the mouse, until what was asked for is painted, answers of the hub
  included: open a run, change the metric, hover a curve, open a site, page the audit. All of them together. A run is
  open when its head, its curve and its sites fill the window, to its lower edge; `whole_run_median_ms`: until all of
  its sites stand in their table, those further down, too; `first_open_median_ms`: until the window is full, by a page
  that was just loaded and has seen no run: it remembers nothing.
- `interaction_cpu_p95_ms`: what the page's own thread has worked for it, in time of the processor, for wall clock
  says little on a machine that others use, too. `idle_p95_ms`: wall clock of a page that has one button which changes
  one word: no page is quicker on this machine at this moment. `answer_median_ms`: of the hub's answers alone.
- `first_load_kib`: what the browser fetches for the first page, packed as it travels.
- `heap_mib_after_run`: of the page that watched the whole run, after the browser has collected what is of no use.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from scratch import scratch

from console_browser import WIDE, chromium
from e2e.deployed import DeployedHub
from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.messages import AuditEvent, RunEvent
from hanse_fabric.subjects import AUDIT, EVENT, Role

ROUNDS, SITES, DECISIONS, TURNS = 1000, 100, 3000, 12
BARS = {"first_paint_s": 1.0, "interaction_p95_ms": 100.0, "first_load_kib": 500.0, "heap_mib_after_run": 150.0}
WORDS = "a bench under the old lime tree"
METRICS = ("accuracy", "loss", "auroc", "brier", "train_loss")
SCHEMA = {"kind": "array", "shape": [64], "task": "classification", "classes": 10}

SHOWN = f"""() => document.querySelector('.chart canvas')
  && document.querySelectorAll('[aria-label="Sites of the run"] tbody tr').length === {SITES}"""
IN_WINDOW = f"""() => {{
  const rows = document.querySelectorAll('[aria-label="Sites of the run"] tbody tr');
  return document.querySelector('.page-title .state') && document.querySelector('.chart canvas') && rows.length > 0
    && (rows.length === {SITES} || rows[rows.length - 1].getBoundingClientRect().bottom >= innerHeight);
}}"""
WATCH = """([name, kind, until]) => {
  const done = new Function(`return (${until})()`);
  window[name] = new Promise(resolve => addEventListener(kind, event => {
    const look = () => done()
      ? requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - event.timeStamp)))
      : requestAnimationFrame(look);
    look();
  }, {capture: true, once: true}));
}"""


def events(run: str, rounds: int, sites: int) -> Any:
    """A run as its hub tells it, round by round: answers of all sites, some of whom drop out now and then."""
    at = datetime.now(UTC) - timedelta(days=1)
    names = [f"clinic-{number:03d}" for number in range(sites)]

    def told(kind: str, number: int, **data: Any) -> bytes:
        moment = at + timedelta(seconds=30 * number)
        return RunEvent(project="triage", run=run, kind=kind, at=moment, round=number, data=data).encode()

    yield told("state", 0, state="running")
    for number in range(1, rounds + 1):
        yield told("round-started", number, participants=names)
        level = 1 - 0.6 / math.sqrt(number)
        values = {}
        for index, name in enumerate(names):
            if (number + index) % 97 == 0:
                yield told(
                    "task-answered", number, participant=name, outcome="timed-out", code="timeout", reason="silent"
                )
                continue
            own = level - (index - sites / 2) / 2000 + 0.01 * math.sin(number * (index + 1))
            values[name] = {metric: own - place / 10 for place, metric in enumerate(METRICS)}
            yield told(
                "task-answered", number, participant=name, outcome="done", seconds=2.0 + index / 50, examples=100
            )
        overall = {metric: level - place / 10 for place, metric in enumerate(METRICS)}
        sizes = {"down": sites * 100_000, "up": sites * 100_000}
        yield told("round-finished", number, metrics=overall, sites=values, bytes=sizes, participants=names)


async def publish(hub: DeployedHub, run: str, rounds: int, sites: int) -> int:
    """Send the stream by the coordinator's rights; returns how many events there are."""
    authority = BusAuthority(hub.hub.state.authority)
    credentials = authority.service_credentials(Role.COORDINATOR)
    bus = await NatsBus.connect(hub.hub.bus_url, Role.COORDINATOR.value, creds=credentials)
    try:
        subject, sent, under_way = EVENT.of(project="triage", run=run), 0, []
        for event in events(run, rounds, sites):
            under_way.append(asyncio.ensure_future(bus.publish(subject, event)))
            sent += 1
            if len(under_way) == 256:  # in order, and many at once
                await asyncio.gather(*under_way)
                under_way = []
        await asyncio.gather(*under_way)
        for number in range(DECISIONS):
            decision = AuditEvent(
                project="triage", at=datetime.now(UTC), actor=f"person:owner-{number % 7}", action="run.submit",
                subject=f"run:{number:012d}", authority="owner for triage", detail={"rounds": number},
            )  # fmt: skip
            await bus.publish(AUDIT.of(project="triage"), decision.encode())
    finally:
        await bus.close()
    return sent


class Reader:
    """A person with a browser, who is signed in."""

    def __init__(self, browser: Any, hub: DeployedHub) -> None:
        self.browser, self.url = browser, hub.hub.console_url
        answer = httpx.post(
            f"{hub.hub.url}/v1/people", json={"name": "reader", "role": "operator"},
            headers={"Authorization": f"Bearer {hub.hub.api_key}"},
        )  # fmt: skip
        self.context = browser.new_context(viewport=WIDE, reduced_motion="reduce")
        self.page = self.context.new_page()
        self._devtools = self.context.new_cdp_session(self.page)
        self._devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
        self.page.goto(f"{self.url}/#/welcome/{answer.json()['token']}")
        self.page.get_by_label("New password").fill(WORDS)
        self.page.get_by_label("The same again").fill(WORDS)
        self.page.get_by_role("button", name="Begin").click()
        self.page.get_by_role("heading", name="Overview").wait_for()

    def heap_mib(self) -> float:
        """Of the page, without what is of no use any more."""
        devtools = self.context.new_cdp_session(self.page)
        devtools.send("HeapProfiler.collectGarbage")
        devtools.send("Performance.enable")
        found = {each["name"]: each["value"] for each in devtools.send("Performance.getMetrics")["metrics"]}
        devtools.detach()
        return float(found["JSHeapUsedSize"]) / 2**20

    def first_visit(self, place: str) -> tuple[float, float, float]:
        """Seconds to the first content and to all that was asked for, and KiB that travelled, with an empty cache."""
        state = self.context.storage_state()
        context = self.browser.new_context(viewport=WIDE, reduced_motion="reduce", storage_state=state)
        page = context.new_page()
        sizes: list[float] = []
        devtools = context.new_cdp_session(page)
        devtools.send("Network.enable")
        devtools.on("Network.loadingFinished", lambda told: sizes.append(told["encodedDataLength"]))
        page.goto(f"{self.url}/#{place}")
        page.wait_for_function(SHOWN)
        shown = page.evaluate("performance.now()") / 1000
        painted = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") / 1000
        page.wait_for_timeout(300)
        context.close()
        return float(painted), float(shown), sum(sizes) / 1024

    def timed(self, kind: str, until: str, act: Any) -> tuple[float, float]:
        """Milliseconds from what a person does until the page has painted what they asked for; and those that the
        page's thread has worked meanwhile."""
        self.watch("took", kind, until)
        before = self._worked()
        act()
        took = self.watched("took")
        return took, self._worked() - before

    def watch(self, name: str, kind: str, until: str) -> None:
        """From the next event of a kind on, look in each frame whether something is so."""
        self.page.evaluate(WATCH, [name, kind, until])

    def watched(self, name: str) -> float:
        """Milliseconds from that event until it was, and was painted."""
        return float(self.page.evaluate(f"window.{name}"))

    def _worked(self) -> float:
        found = {each["name"]: each["value"] for each in self._devtools.send("Performance.getMetrics")["metrics"]}
        return 1000 * float(found["TaskDuration"])

    def idle(self) -> list[float]:
        """The same of a page with nothing in it but a button."""
        self.page.goto("about:blank")
        self.page.evaluate(
            "document.body.innerHTML = '<button>0</button>';"
            "document.querySelector('button').onclick = event => { event.target.textContent++; }; 0"
        )
        took = []
        for turn in range(TURNS):
            until = f"() => document.querySelector('button').textContent === '{turn + 1}'"
            took.append(self.timed("click", until, self.page.get_by_role("button").click)[0])
            self.page.wait_for_timeout(100)
        return took

    def answers(self, *places: str) -> dict[str, float]:
        """Milliseconds until the hub has answered whole, for each of these paths; median."""
        ask = """async path => {
          const at = performance.now();
          await (await fetch(path)).text();
          return performance.now() - at;
        }"""
        return {
            place.rpartition("/")[2].partition("?")[0]: round(
                statistics.median(float(self.page.evaluate(ask, place)) for _ in range(TURNS)), 1
            )
            for place in places
        }


Took = dict[str, list[tuple[float, float]]]
"""Of each interaction, again and again: wall clock and work of the page's thread, in milliseconds."""


def first_opens(reader: Reader) -> list[float]:
    """Milliseconds until a run is open, of a page that was just loaded."""
    took = []
    for _ in range(TURNS):
        reader.page.goto("about:blank")
        reader.page.goto(f"{reader.url}/#/projects/triage")
        link = reader.page.get_by_role("link", name="large")
        link.wait_for()
        reader.page.wait_for_timeout(700)
        took.append(reader.timed("click", IN_WINDOW, link.element_handle().click)[0])
    return took


def interactions(reader: Reader) -> tuple[Took, list[float]]:
    """Each of the five, some times over; and how long a run took that was opened until all of it was there."""
    page = reader.page
    took: Took = {}
    whole: list[float] = []

    # What is clicked is looked for before: the search works the page's thread, too.
    def note(what: str, kind: str, until: str, act: Any) -> None:
        took.setdefault(what, []).append(reader.timed(kind, until, act))
        page.wait_for_timeout(400)  # a person looks at it

    for _ in range(TURNS):
        page.goto(f"{reader.url}/#/projects/triage")
        link = page.get_by_role("link", name="large")
        link.wait_for()
        page.wait_for_timeout(300)
        reader.watch("whole", "click", SHOWN)
        note("open a run", "click", IN_WINDOW, link.element_handle().click)
        whole.append(reader.watched("whole"))
    for turn in range(TURNS):
        metric = METRICS[turn % 3 and 1 + turn % 2]
        page.get_by_role("combobox", name="Metric").or_(page.get_by_role("textbox", name="Metric")).first.click()
        option = page.get_by_role("option", name=metric, exact=True)
        until = f"() => document.querySelector('.chart [role=img]').ariaLabel.startsWith('{metric} ')"
        note("change the metric", "click", until, option.element_handle().click)
    box = page.locator(".chart .u-over").first.bounding_box()
    for turn in range(TURNS):
        page.evaluate("window.before = document.querySelector('.u-legend').textContent")
        note(
            "hover a curve", "mousemove", "() => document.querySelector('.u-legend').textContent !== window.before",
            lambda turn=turn: page.mouse.move(box["x"] + 60 + 40 * turn, box["y"] + 60),
        )  # fmt: skip
    for turn in range(TURNS):
        name = f"clinic-{(7 * turn) % SITES:03d}"
        until = (
            f"() => [...document.querySelectorAll('.u-legend .u-label')].some(label => label.textContent === '{name}')"
        )
        note("open a site", "click", until, page.get_by_role("button", name=name, exact=True).element_handle().click)
    page.goto(f"{reader.url}/#/projects/triage/audit")
    page.get_by_role("cell", name="run.submit").first.wait_for()
    first = "document.querySelector('[aria-label=Decisions] tbody').textContent"
    for _ in range(TURNS):
        page.evaluate(f"window.before = {first}")
        older = page.get_by_role("button", name="Older")
        note("page the audit", "click", f"() => {first} !== window.before", older.element_handle().click)
    return took, whole


def measure(folder: Path, rounds: int, sites: int) -> dict[str, Any]:
    """All figures."""
    hub = DeployedHub(folder, console=True)
    hub.start()
    try:
        project = hub.client().projects.create("triage", schema=SCHEMA)
        job = {
            "rounds": rounds,
            "model": {"name": "mlp", "hidden": [8]},
            "participants": {"minimum": sites},
            "name": "large",
        }
        run = project.run(job).id
        with chromium() as browser:
            reader = Reader(browser, hub)
            reader.page.goto(f"{reader.url}/#/projects/triage/runs/{run}")
            reader.page.get_by_text("live", exact=True).wait_for()
            began = time.perf_counter()
            with ThreadPoolExecutor(1) as aside:  # this thread is the browser's
                sent = aside.submit(lambda: asyncio.run(publish(hub, run, rounds, sites))).result()
            reader.page.get_by_text(f"{rounds} of {rounds}").first.wait_for(timeout=300_000)
            reader.page.wait_for_function(SHOWN, timeout=60_000)
            told_s = time.perf_counter() - began
            heap = reader.heap_mib()
            visits = [reader.first_visit(f"/projects/triage/runs/{run}") for _ in range(5)]
            took, whole = interactions(reader)
            first = first_opens(reader)
            answers = reader.answers(*(f"/v1/projects/triage/{place}" for place in (
                f"runs/{run}", f"runs/{run}/curves?points=300", f"runs/{run}/curves?points=300&sites=false",
                "participants", "audit?newest=true&limit=50",
            )))  # fmt: skip
            idle = reader.idle()
    finally:
        hub.stop()
    wall = [each for times in took.values() for each, _ in times]
    return {
        "first_paint_s": round(statistics.median(visit[0] for visit in visits), 3),
        "shown_s": round(statistics.median(visit[1] for visit in visits), 3),
        "interaction_p95_ms": p95(wall),
        "interaction_cpu_p95_ms": p95([work for times in took.values() for _, work in times]),
        "idle_p95_ms": p95(idle),
        "whole_run_median_ms": round(statistics.median(whole), 1),
        "first_open_median_ms": round(statistics.median(first), 1),
        "first_load_kib": round(max(visit[2] for visit in visits), 1),
        "heap_mib_after_run": round(heap, 1),
        "events": sent,
        "events_told_s": round(told_s, 1),
        "median_ms": {what: round(statistics.median(each for each, _ in times), 1) for what, times in took.items()},
        "median_cpu_ms": {what: round(statistics.median(work for _, work in times), 1) for what, times in took.items()},
        "largest_ms": {what: round(max(each for each, _ in times), 1) for what, times in took.items()},
        "answer_median_ms": answers,
    }


def p95(times: list[float]) -> float:
    """Of 20, all but one are as quick."""
    return round(sorted(times)[math.ceil(0.95 * len(times)) - 1], 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON line")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of the recorded run")
    given = parser.parse_args()
    with scratch("console") as name:
        found = measure(Path(name), given.rounds, SITES)
    if given.json:
        print(json.dumps(found))
        return
    for figure, value in found.items():
        bar = f"  (bar {BARS[figure]:g})" if figure in BARS else ""
        print(f"{figure:20} {value}{bar}")


if __name__ == "__main__":
    main()
