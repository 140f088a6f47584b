"""Least values of smooth functions of a few numbers: BFGS (Nocedal and Wright 2006, algorithm 6.1). No numpy."""

from __future__ import annotations

import math
from collections.abc import Callable

Floats = list[float]
_STEPS = 200
_ENOUGH = 1e-6
"""Length of a gradient below which nothing is gained, and a thousandth of what a step must gain."""
_ARMIJO = 1e-4


def least(function: Callable[[Floats], tuple[float, Floats]], start: Floats) -> Floats:
    """Where the function is least, near `start`: (n,).

    Args:
        function: its value and its gradient (n,).
    """
    size = len(start)
    point, (value, slope) = list(start), function(start)
    inverse = _identity(size)
    for _ in range(_STEPS):
        if math.hypot(*slope) < _ENOUGH:
            break
        step = [-_dot(row, slope) for row in inverse]
        downward = _dot(step, slope)
        if downward >= 0:
            inverse, step = _identity(size), [-each for each in slope]
            downward = -_dot(slope, slope)
        moved = _line(function, point, value, step, downward)
        if moved is None:
            break
        after, found, turned = moved
        walked = [now - before for now, before in zip(after, point, strict=True)]
        change = [now - before for now, before in zip(turned, slope, strict=True)]
        _update(inverse, walked, change)
        gained = value - found
        point, value, slope = after, found, turned
        if gained < _ENOUGH / 1000:
            break
    return point


def _line(
    function: Callable[[Floats], tuple[float, Floats]], point: Floats, value: float, step: Floats, downward: float
) -> tuple[Floats, float, Floats] | None:
    """The first point on the way that lies low enough; None where there is none."""
    share = min(1.0, 1.0 / math.hypot(*step))
    for _ in range(30):
        after = [at + share * each for at, each in zip(point, step, strict=True)]
        found, turned = function(after)
        if math.isfinite(found) and found <= value + _ARMIJO * share * downward:
            return after, found, turned
        share /= 2
    return None


def _update(inverse: list[Floats], walked: Floats, change: Floats) -> None:
    curved = _dot(walked, change)
    if curved <= 1e-14:
        return
    pulled = [_dot(row, change) for row in inverse]
    weight = (1 + _dot(change, pulled) / curved) / curved
    for at, row in enumerate(inverse):
        for other in range(len(row)):
            row[other] += weight * walked[at] * walked[other]
            row[other] -= (pulled[at] * walked[other] + walked[at] * pulled[other]) / curved


def _dot(one: Floats, other: Floats) -> float:
    return sum(map(float.__mul__, one, other))


def _identity(size: int) -> list[Floats]:
    return [[float(row == column) for column in range(size)] for row in range(size)]
