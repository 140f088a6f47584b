"""An experiment's picture: its metric by round, the mean over the seeds in a band of one deviation, as SVG."""

from __future__ import annotations

import io
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hanse_lab.play import CellOutcome
from hanse_lab.summary import Summary
from hanse_lab.tables import column_titles, in_units

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#8A6D00")
"""Six that the colour-blind tell apart (after Okabe and Ito, 2008; the yellow made dark enough for a line)."""
_INK, _QUIET = "#1c2530", "#c9d1d9"
_ROWS, _ACROSS = 5, 3
_SETTLED, _POINTS = 0.12, 60
_WIDTH, _HEIGHT = 3.6, 2.3
"""Of a panel, in inches."""


@dataclass(frozen=True, slots=True)
class _Line:
    name: str
    rounds: list[int]
    mean: list[float]
    deviation: list[float]


def picture(summary: Summary) -> Figure:
    """A panel for every few rows and every column of the tables: a column of panels for each of several columns,
    otherwise side by side."""
    experiment = summary.experiment
    columns, titles = column_titles(experiment)
    panels = [*experiment.panels.items()] or _in_fives([*experiment.algorithms])
    across = min(_ACROSS, len(panels)) if len(columns) == 1 else len(columns) if len(columns) <= _ACROSS else 2
    drawn = [
        (
            name if name and len(columns) == 1 else "; ".join(filter(None, (name, title))),
            [_line(summary, row, *column) for row in rows],
        )
        for name, rows in panels
        for column, title in zip(columns, titles, strict=True)
    ]
    down = -(-len(drawn) // across)
    figure = Figure(figsize=(_WIDTH * across, _HEIGHT * down), layout="constrained")
    for number, (title, lines) in enumerate(drawn):
        axes = figure.add_subplot(down, across, number + 1)
        _draw(axes, [line for line in lines if line.rounds], experiment.metric)
        axes.set_title(title, fontsize=9, loc="left", color=_INK)
        if number % across == 0:
            axes.set_ylabel(in_units(experiment.metric), fontsize=8)
        if number + across >= len(drawn):
            axes.set_xlabel("round", fontsize=8)
    return figure


def as_svg(figure: Figure) -> bytes:
    """The same bytes for the same picture, and few of them: text stays text, places have one digit after the point."""
    into = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "hanse", "svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"]}):
        figure.savefig(into, format="svg", metadata={"Date": None, "Creator": None})
    short = re.sub(r"(\d\.\d)\d+(?=[^<>]*>)", r"\1", into.getvalue())  # in tags, not in what is read
    return re.sub(r" ?\n *", "\n", short).encode()


def label_ends(axes: Axes, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Name lines at their right ends, apart from each other: (x, y, name, colour) of each."""
    low, high = axes.get_ylim()
    apart = (high - low) * 0.115
    ordered = sorted(ends, key=lambda end: end[1])
    up = accumulate((y for _, y, _, _ in ordered), lambda below, y: max(y, below + apart))
    down = [*accumulate((y for _, y, _, _ in reversed(ordered)), lambda above, y: min(y, above - apart))]
    middle = [(one + other) / 2 for one, other in zip(up, reversed(down), strict=True)]
    at = [min(y, high - apart * above) for y, above in zip(middle, reversed(range(len(middle))), strict=True)]
    for (x, _, name, colour), y in zip(ordered, at, strict=True):
        axes.annotate(
            name, (x, y), xytext=(4, 0), textcoords="offset points", fontsize=7.5, color=colour, va="center",
            annotation_clip=False,
        )  # fmt: skip


def plain(axes: Axes) -> None:
    """Round ticks, quiet lines, no box."""
    axes.locator_params(axis="both", nbins=5, steps=[1, 2, 5, 10])
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_QUIET)
    axes.tick_params(labelsize=7.5, colors=_INK, color=_QUIET)
    axes.grid(axis="y", color=_QUIET, linewidth=0.5, alpha=0.6)
    axes.set_axisbelow(True)


def _draw(axes: Axes, lines: Sequence[_Line], metric: str) -> None:
    ends = []
    heads = {line.name.rpartition(", ")[0] for line in lines}
    shared = f"{heads.pop()}, " if len(heads) == 1 < len(lines) else ""  # it is in the panel's title
    for line, colour in zip(lines, COLOURS, strict=False):
        low = [mean - deviation for mean, deviation in zip(line.mean, line.deviation, strict=True)]
        high = [mean + deviation for mean, deviation in zip(line.mean, line.deviation, strict=True)]
        axes.fill_between(line.rounds, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.plot(line.rounds, line.mean, color=colour, linewidth=1.4)
        ends.append((line.rounds[-1], line.mean[-1], line.name.removeprefix(shared), colour))
    last = max((line.rounds[-1] for line in lines), default=1)
    axes.set_xlim(0, last)
    settled = [mean for line in lines for at, mean in zip(line.rounds, line.mean, strict=True) if at >= _SETTLED * last]
    _, top = axes.get_ylim()
    if settled and metric == "accuracy":  # the first rounds' climb would leave the differences no room
        axes.set_ylim(max(0.0, min(settled) - 0.1 * (top - min(settled))), min(100.0, top))
    plain(axes)
    label_ends(axes, ends)


def _line(summary: Summary, row: str, partition: str, attack: str) -> _Line:
    metric = summary.experiment.metric
    scale = 100.0 if metric == "accuracy" else 1.0
    by_round: dict[int, list[float]] = {}
    for outcome in summary.outcomes(row, partition, attack):
        for number, value in _measured(outcome, metric):
            by_round.setdefault(number, []).append(scale * value)
    rounds = sorted(by_round)
    rounds = rounds[:: -max(1, len(rounds) // _POINTS)][::-1]
    return _Line(
        row, rounds, [statistics.fmean(by_round[number]) for number in rounds],
        [statistics.stdev(values) if len(values := by_round[number]) > 1 else 0.0 for number in rounds],
    )  # fmt: skip


def _measured(outcome: CellOutcome, metric: str) -> list[tuple[int, float]]:
    return [*zip(outcome.rounds, outcome.metrics.get(metric, ()), strict=False)]


def _in_fives(rows: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    return [("", tuple(rows[first : first + _ROWS])) for first in range(0, len(rows), _ROWS)]
