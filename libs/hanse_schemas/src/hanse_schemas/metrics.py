"""The metrics that built-in evaluation reports: for which task, and which of two values is the better one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Better = Literal["max", "min"]
Task = Literal["classification", "regression"]

_WORST = "_min"


@dataclass(frozen=True, slots=True)
class Metric:
    """What is known of a metric.

    Attributes:
        better: whether the larger or the smaller value is better.
        tasks: of which it is reported.
        mean: whether it is the mean of a value that each example has.
    """

    name: str
    better: Better
    tasks: tuple[Task, ...]
    mean: bool = False


METRICS: Mapping[str, Metric] = MappingProxyType({
    metric.name: metric
    for metric in (
        Metric("loss", "min", ("classification", "regression"), mean=True),
        Metric("accuracy", "max", ("classification",), mean=True),
        Metric("matthews", "max", ("classification",)),
        Metric("mse", "min", ("regression",), mean=True),
        Metric("r2", "max", ("regression",)),
    )
})  # fmt: skip
"""By name, in the order in which tables show them."""


def known(name: str) -> Metric | None:
    """The metric of that name, or of which the name is a site's smallest value (`accuracy_min`); None: unknown here."""
    return METRICS.get(name) or METRICS.get(name.removesuffix(_WORST))


def reported(task: Task, *, by_site: bool) -> tuple[str, ...]:
    """What a run of that task reports of each evaluation.

    Args:
        by_site: whether sites report for themselves, so that the smallest value of one is known; not in masked runs.
    """
    names = tuple(name for name, metric in METRICS.items() if task in metric.tasks)
    return names + tuple(f"{name}{_WORST}" for name in names if by_site)
