"""Curves of an experiment as SVG: a metric by round, the mean over seeds in a band of one deviation."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from hanse_lab.play import CellOutcome
from hanse_lab.summary import Summary

_COLOURS = (
    "#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf",
)  # fmt: skip
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 460, 300, 48, 28, 34
_LEGEND = 190


@dataclass(frozen=True, slots=True)
class _Line:
    name: str
    points: list[tuple[int, float, float]]
    """(round, mean, deviation)."""


def curves(summary: Summary, partition: str, attack: str, title: str) -> str:
    """One column's curves; an SVG document."""
    metric = summary.experiment.metric
    lines = [
        _Line(name, _points(summary.outcomes(name, partition, attack), metric))
        for name in summary.experiment.algorithms
    ]
    lines = [line for line in lines if line.points]
    height = max(_HEIGHT, _TOP + 16 * len(lines) + 10)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH + _LEGEND}" height="{height}" '
        f'viewBox="0 0 {_WIDTH + _LEGEND} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{_WIDTH + _LEGEND}" height="{height}" fill="white"/>',
        f'<text x="{_LEFT}" y="16" font-size="12">{escape(title)}: {escape(metric)} by round</text>',
    ]
    if lines:
        parts += _drawn(lines)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _points(outcomes: Sequence[CellOutcome], metric: str) -> list[tuple[int, float, float]]:
    by_round: dict[int, list[float]] = {}
    for outcome in outcomes:
        for number, value in zip(outcome.rounds, outcome.metrics.get(metric, ()), strict=False):
            by_round.setdefault(number, []).append(value)
    return [
        (number, statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0)
        for number, values in sorted(by_round.items())
    ]


def _drawn(lines: Sequence[_Line]) -> list[str]:
    most = max(point[0] for line in lines for point in line.points)
    low = min(mean - deviation for line in lines for _, mean, deviation in line.points)
    high = max(mean + deviation for line in lines for _, mean, deviation in line.points)
    span = (high - low) or 1.0

    def x(number: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - 10) * number / most, 1)

    def y(value: float) -> float:
        return round(_HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * (value - low) / span, 1)

    parts = []
    for step in range(5):
        value = low + span * step / 4
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{y(value)}" y2="{y(value)}" stroke="#ddd"/>'
            f'<text x="{_LEFT - 4}" y="{y(value) + 4}" text-anchor="end">{value:.3g}</text>'
        )
        number = round(most * step / 4)
        parts.append(f'<text x="{x(number)}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{number}</text>')
    for index, line in enumerate(lines):
        colour = _COLOURS[index % len(_COLOURS)]
        dash = ' stroke-dasharray="5 3"' if index >= len(_COLOURS) else ""
        upper = [f"{x(number)},{y(mean + deviation)}" for number, mean, deviation in line.points]
        lower = [f"{x(number)},{y(mean - deviation)}" for number, mean, deviation in reversed(line.points)]
        middle = " ".join(f"{x(number)},{y(mean)}" for number, mean, _ in line.points)
        at = _TOP + 16 * index
        parts += [
            f'<polygon points="{" ".join(upper + lower)}" fill="{colour}" fill-opacity="0.12"/>',
            f'<polyline points="{middle}" fill="none" stroke="{colour}" stroke-width="1.5"{dash}/>',
            f'<line x1="{_WIDTH}" x2="{_WIDTH + 18}" y1="{at}" y2="{at}" stroke="{colour}" stroke-width="2"{dash}/>'
            f'<text x="{_WIDTH + 23}" y="{at + 4}">{escape(line.name)}</text>',
        ]
    return parts
