"""A run's target: the one asked for, or the job's own, and when it was reached."""

from __future__ import annotations

from hanse.history import History, size_text
from hanse.views import RunView
from hanse_schemas.targets import Reached


def asked_for(view: RunView, history: History, metric: str, target: float | None) -> tuple[str, float | None]:
    """The metric to show, and its target; where neither is given, those of the job's `stop` section. Pure."""
    stop = view.job.get("stop") or {}
    own = str(stop.get("metric", ""))
    name = metric or (own if any(value is not None for value in history.mean(own)) else history.metric)
    if target is None and name == own and isinstance(stop.get("target"), int | float):
        return name, float(stop["target"])
    return name, target


def attained(reached: Reached | None) -> str:
    """When a target was reached, in words. Pure."""
    if reached is None:
        return "not reached"
    sent = f", after {size_text(reached.bytes)} up and down" if reached.bytes else ""
    return f"reached in round {reached.round}{sent}"
