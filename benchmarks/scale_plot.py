"""Draws docs/scale.png from the lines of `bench-scale --json` in scale.jsonl: `python benchmarks/scale_plot.py`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

LINES = Path(__file__).with_name("scale.jsonl")
PICTURE = Path(__file__).parents[1] / "docs" / "scale.png"


def read() -> list[dict[str, Any]]:
    """The runs in whose rounds a tenth took part."""
    runs = [json.loads(line) for line in LINES.read_text().splitlines() if line]
    runs = [run for run in runs if run["cohort"] * 10 == run["participants"]]
    return sorted(runs, key=lambda run: int(run["participants"]))


def draw(runs: list[dict[str, Any]]) -> None:
    """Memory and time against participants, both axes logarithmic."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    counts = [run["participants"] for run in runs]
    memory = {
        "NATS at the hub": [run["hub_mib_peak"]["nats-server"] for run in runs],
        f"NATS at a leaf (of {runs[-1]['leaves']})": [run["leaf_mib_peak"]["leaf-nats-server"] for run in runs],
        "coordinator": [run["hub_mib_peak"]["coordinator"] for run in runs],
        "aggregator": [run["hub_mib_peak"]["aggregator"] for run in runs],
    }
    seconds = {
        "all enrol": [run["enrol_seconds"] for run in runs],
        "all connect at once": [run["join_seconds"] for run in runs],
        "a round with a tenth of them": [run["round_seconds_p50"] for run in runs],
    }
    lines(left, counts, memory, "resident memory, MiB", [25 << power for power in range(8)])
    lines(right, counts, seconds, "seconds", [0.1, 1, 10, 100])
    figure.savefig(PICTURE, dpi=100, pil_kwargs={"optimize": True})


def lines(axes: Axes, counts: list[int], curves: dict[str, list[float]], unit: str, ticks: Sequence[float]) -> None:
    for (name, values), marker in zip(curves.items(), "osD^", strict=False):
        axes.loglog(counts, values, marker=marker, markersize=4, linewidth=1.2, label=name)
    axes.set_xticks(counts, [f"{count:,}" for count in counts])
    most = max(value for values in curves.values() for value in values)
    shown = [tick for tick in ticks if tick < 2 * most]
    axes.set_yticks(shown, [f"{tick:,}" for tick in shown])
    axes.minorticks_off()
    axes.set_xlabel("participants")
    axes.set_ylabel(unit)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)


if __name__ == "__main__":
    draw(read())
