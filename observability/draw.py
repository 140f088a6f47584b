# ruff: noqa: E402 - the helpers are found after the path is set
"""`python observability/draw.py`: the hub's dashboard with real data, as a picture (docs/dashboard-hub.png).

A real hub trains with four sites, of which one stops for a while and one hands in what is refused; a real Prometheus
scrapes it; each panel's queries are asked as Grafana would ask them, and drawn with matplotlib. Needs Prometheus (see
tests/prometheus.py) and the tests' helpers.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
for folder in ("observability", "tests"):
    sys.path.insert(0, str(ROOT / folder))

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from dashboards import scoped
from matplotlib.axes import Axes
from panels import HUB, Panel, Row

from e2e.deployed import DeployedHub, honest, publish_result, site, start_job
from hanse.site import SiteTask
from hanse_lab.pictures import COLOURS, label_ends, plain
from hanse_operations.servers.program import free_ports
from observability.monitored import ALERTS, Monitored

SERVICES = ["coordinator", "aggregator", "aggregator-2", "compensator", "model-registry"]
ROUNDS = 12
STOPPED_IN = 5
STOPPED_S = 25.0
UNITS = {
    "short": ("number", 1.0), "s": ("seconds", 1.0), "percentunit": ("%", 100.0), "bytes": ("MiB", 2.0**-20),
    "Bps": ("kB in a second", 1e-3),
}  # fmt: skip
"""Of Grafana's units: what stands at the axis, and what values are multiplied by."""
_TALL, _LOW = 2.4, 1.25
"""Inches of a row of lines, and of one of words."""


def trained(folder: Path, monitored: Monitored) -> tuple[float, float, float]:
    """Train; returns the times of the beginning, of the moment when the run was stuck, and of the end."""
    hub = DeployedHub(folder / "hub", aggregators=2, leaves=True)  # with a monitoring port, as in the charts
    began = time.time()
    hub.start()
    exporters: list[subprocess.Popen[bytes]] = []
    try:
        monitored.scrape_hub(folder / "hub", SERVICES)
        exporters.append(_exporter(monitored, hub.hub.monitoring[0]))
        stuck = threading.Event()

        def slow(task: SiteTask) -> None:
            if task.round == STOPPED_IN and task.kind == "train":
                stuck.set()
                time.sleep(STOPPED_S)
            steady(task)

        def steady(task: SiteTask) -> None:
            time.sleep(1.0)
            honest()(task)

        def forging(task: SiteTask) -> None:
            publish_result(task, b"nonsense")
            steady(task)

        with hub.client() as client, ExitStack() as stack:
            project = client.projects.create("triage", schema={"kind": "open"})
            rows = {"north": steady, "south": slow, "west": steady, "east": forging}
            for name, answer in rows.items():
                stack.enter_context(site(project, name, folder / "sites", answer))
            wanted = {"minimum": 4, "quorum": 1.0, "deadline": 120.0}
            run = project.run(start_job(project, rounds=ROUNDS, participants=wanted, evaluate={"every": 1}))
            stuck.wait(120)
            time.sleep(STOPPED_S - 4)
            moment = time.time()
            run.wait()
            project.run(start_job(project, participants={"minimum": 9, "patience": 1.0})).wait()
            time.sleep(4)
        return began, moment, time.time()
    finally:
        for process in exporters:
            process.terminate()
            process.wait(30)
        hub.stop()


def _exporter(monitored: Monitored, nats: str) -> subprocess.Popen[bytes]:
    port = free_ports(1)[0]
    argv = [sys.executable, "-m", "hanse_operations.bus.exporter", "--nats", nats]
    started = subprocess.Popen([*argv, "--port", str(port)], stderr=subprocess.DEVNULL)
    monitored.scrape("nats", f"127.0.0.1:{port}")
    return started


def asked(query: str) -> str:
    """A query as Grafana would send it."""
    return scoped(query).replace('"$namespace"', '".*"').replace("$__rate_interval", "10s")


def draw(monitored: Monitored, times: tuple[float, float, float], file: Path) -> dict[str, int]:
    """Draw all panels; returns the number of series of each."""
    began, moment, end = times
    lines = [(row.title, panels) for row in HUB for panels in _threes(row)]
    heights = [_TALL if panels[0].kind == "timeseries" else _LOW for _, panels in lines]
    size = (15, sum(heights))
    figure, axes = plt.subplots(len(lines), 3, figsize=size, height_ratios=heights, layout="constrained")
    found: dict[str, int] = {}
    before = ""
    for line, (question, panels) in zip(axes, lines, strict=True):
        if question != before:
            line[0].text(0, 1.0, f"{question}\n\n", transform=line[0].transAxes, fontsize=13, fontweight="bold")
        for axis, panel in zip(line, [*panels, None, None], strict=False):
            if panel is None:
                axis.axis("off")
                continue
            axis.set_title(panel.title, fontsize=10, loc="left")
            if panel.kind == "timeseries":
                found[panel.title] = _lines(axis, monitored, panel, began, end)
            else:
                found[panel.title] = _figures(axis, monitored, panel, moment if question == HUB[1].title else end)
        before = question
    figure.savefig(file, dpi=66, pil_kwargs={"optimize": True})
    return found


def _threes(row: Row) -> list[Sequence[Panel]]:
    """The row's panels of words, and then those of lines, three beside each other."""
    words = [panel for panel in row.panels if panel.kind != "timeseries"]
    lines = [panel for panel in row.panels if panel.kind == "timeseries"]
    return [kind[first : first + 3] for kind in (words, lines) for first in range(0, len(kind), 3)]


def _lines(axis: Axes, monitored: Monitored, panel: Panel, began: float, end: float) -> int:
    unit, scale = UNITS[panel.unit]
    drawn = []
    for legend, query in panel.queries.items():
        for series in monitored.query_range(asked(query), began, end, 1):
            points = [(float(at) - began, scale * float(value)) for at, value in series["values"] if value != "NaN"]
            if points:
                drawn.append((_named(legend, series["metric"]), points))
    drawn.sort(key=lambda one: -max(value for _, value in one[1]))  # the largest have names, where there are many
    for (_, points), colour in zip(drawn, COLOURS, strict=False):
        axis.plot(*zip(*points, strict=True), color=colour, linewidth=1.4)
    axis.set_xlim(0, end - began)
    axis.set_ylim(0, 1.08 * (axis.get_ylim()[1] if drawn and drawn[0][1] and axis.get_ylim()[1] > 0.06 else 1))
    plain(axis)
    axis.set_xlabel("seconds since the hub was started", fontsize=7.5)
    axis.set_ylabel(unit, fontsize=8)
    label_ends(axis, [(*points[-1], name, colour) for (name, points), colour in zip(drawn, COLOURS, strict=False)])
    if not drawn:
        axis.text(0.5, 0.5, "no data", transform=axis.transAxes, ha="center", fontsize=8)
    return len(drawn)


def _figures(axis: Axes, monitored: Monitored, panel: Panel, at: float) -> int:
    axis.axis("off")
    cells = []
    for legend, query in panel.queries.items():
        for series in monitored.query_range(asked(query), at, at, 1):
            value = float(series["values"][0][1])
            words = panel.good[1 - int(value)] if panel.good is not None else f"{value:.3g} {_unit(panel)}"
            name = _named(legend, series["metric"]) if panel.kind == "stat" else "  ".join(series["metric"].values())
            cells.append((value, name, words))
    cells.sort(key=lambda cell: (-cell[0], cell[1]))
    for line, (value, name, words) in enumerate(cells[:6]):
        bad = panel.good is not None and value != 1
        text = f"{name[:60]:<26} {words}".strip()
        axis.text(0.02, 0.88 - line * 0.19, text, fontsize=8.5, family="monospace", color="#B00020" if bad else "black",
                  transform=axis.transAxes)  # fmt: skip
    if not cells:
        axis.text(0.02, 0.6, "none", fontsize=8.5, transform=axis.transAxes)
    return len(cells)


def _unit(panel: Panel) -> str:
    return "" if panel.unit == "short" else panel.unit


def _named(legend: str, labels: dict[str, Any]) -> str:
    for name, value in labels.items():
        legend = legend.replace(f"{{{{{name}}}}}", value)
    return legend


def main() -> None:
    parser = argparse.ArgumentParser("python observability/draw.py", description="the hub's dashboard with real data")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/dashboard-hub.png")
    out = parser.parse_args().out
    with (
        tempfile.TemporaryDirectory() as folder,
        Monitored(Path(folder) / "prometheus", ALERTS.read_text()) as monitored,
    ):
        times = trained(Path(folder), monitored)
        found = draw(monitored, times, out)
    print(f"{out}: {out.stat().st_size} bytes")
    for title, count in found.items():
        print(f"  {title}: {count} series" + ("" if count else "  (needs Kubernetes, or did not occur)"))


if __name__ == "__main__":
    main()
