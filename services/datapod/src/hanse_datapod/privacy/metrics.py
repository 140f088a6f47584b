"""Metrics of a private task: which leave, with noise that is charged, and what the worker is told of it.

Loads numpy where there is noise to draw.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hanse_datapod.worker.port import WorkOutcome
from hanse_fabric.messages import RingPlan, Task, TaskKind
from hanse_fabric.messages.privacy import PrivateMetrics


@dataclass(frozen=True, slots=True)
class CoveredMetrics:
    """The numbers that leave beside an update, or of an evaluation.

    Attributes:
        by_example: each example is hidden, there or not, and the number of examples is told; else the whole site.
        ring: of the masked tally, which must hold them.
    """

    asked: PrivateMetrics
    by_example: bool
    ring: RingPlan | None = None

    @property
    def told(self) -> dict[str, Any]:
        """What the worker is told: names with bounds, to which it cuts the values of single examples."""
        return {"cut" if self.by_example else "metrics": dict(sorted(self.asked.bounds.items()))}

    def noisy(self, outcome: WorkOutcome) -> WorkOutcome:
        """The outcome with these numbers, and their noise, alone."""
        from hanse_privacy.noise.metrics import noisy_means, noisy_metrics
        from hanse_privacy.noise.source import NoiseSource

        if not self.by_example:
            return replace(outcome, metrics=self._held(noisy_metrics(outcome.metrics, self.asked, NoiseSource())))
        metrics, examples = noisy_means(outcome.metrics, outcome.examples, self.asked, NoiseSource())
        if self.ring is not None:
            examples = min(examples, self.ring.largest_weight)
        return replace(outcome, metrics=self._held(metrics), examples=examples)

    def _held(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """As the tally can hold them: noise may lead beyond its bound."""
        if self.ring is None:
            return dict(metrics)
        from hanse_privacy.ring.plan import metric_ring

        bound = metric_ring(self.ring).bound
        return {name: min(bound, max(-bound, value)) for name, value in metrics.items()}


def covered_metrics(task: Task) -> CoveredMetrics | None:
    """The numbers that leave with noise, of a task with privacy terms; None where there are none.

    In training by `dp_sgd` there are none: its losses are of batches, which hide nobody.
    """
    privacy = None if task.privacy is None else task.privacy.privacy
    if privacy is None or privacy.metrics is None or privacy.placement == "central":
        return None
    by_example = privacy.mechanism == "dp_sgd"
    if task.kind is TaskKind.PREPARE or (by_example and task.kind is TaskKind.TRAIN):
        return None
    return CoveredMetrics(privacy.metrics, by_example, None if task.masking is None else task.masking.ring)
