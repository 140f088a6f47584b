"""Curves of few points that show what curves of many show.

Of each stretch of rounds the lowest and the highest are kept, as M4 does for each column of pixels (Jugel et al.,
2014): a peak is never lost, which a choice by triangles (LTTB) does not promise, and every point has really been. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Value = float | None

_NUMBERS = (int, float)
"""A tuple, for all numbers of a long run pass here: `isinstance` looks at it twice as quickly as at a union."""


def kept(values: Sequence[Value], points: int) -> list[int]:
    """Which of the values are kept: first, last, and of each of (points - 2) / 2 stretches the lowest and the highest;
    of a stretch without a value its first.

    Args:
        points: at least 4; no more are kept.
    """
    count = len(values)
    if count <= points:
        return list(range(count))
    stretches, inner = (points - 2) // 2, count - 2
    found = {0, count - 1}
    for stretch in range(stretches):
        begin, end = 1 + stretch * inner // stretches, 1 + (stretch + 1) * inner // stretches
        told = [(value, at) for at in range(begin, end) if (value := values[at]) is not None]
        found |= {min(told)[1], max(told, key=lambda each: (each[0], -each[1]))[1]} if told else {begin}
    return sorted(found)


Spread = Mapping[str, tuple[float, float]]
"""Of one round: by metric the lowest and the highest over all sites."""


def spread(sites: Mapping[str, Any]) -> Spread:
    """Of what each site has told in a round: its metrics by name, where they are numbers."""
    columns: dict[str, list[float]] = {}
    for told in sites.values():
        for name, value in told.items() if isinstance(told, dict) else ():
            if is_number(value):
                columns.setdefault(name, []).append(value)
    return {name: (min(values), max(values)) for name, values in columns.items()}


def spans(told: Sequence[tuple[float, float] | None], rounds: Sequence[int]) -> tuple[list[Value], list[Value]]:
    """The lowest and the highest over all sites, of all rounds since the kept one before.

    Args:
        told: the lowest and the highest of each round; None: no site has told a number.
        rounds: which are kept, as indices.
    """
    low: list[Value] = []
    high: list[Value] = []
    begin = 0
    for at in rounds:
        stretch = [each for each in told[begin : at + 1] if each is not None]
        low.append(number(min((each[0] for each in stretch), default=None)))
        high.append(number(max((each[1] for each in stretch), default=None)))
        begin = at + 1
    return low, high


def number(value: Any) -> Value:
    """Six digits of what is a number and can be drawn; None of all else."""
    return float(f"{value:.6g}") if is_number(value) else None


def is_number(value: Any) -> bool:
    """Whether it can be drawn."""
    return isinstance(value, _NUMBERS) and not isinstance(value, bool) and math.isfinite(value)
