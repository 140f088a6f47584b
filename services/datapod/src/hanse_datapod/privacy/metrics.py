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
from hanse_learning.pooled.layout import Counts, check_noise, counts_in


@dataclass(frozen=True, slots=True)
class CoveredMetrics:
    """The numbers that leave beside an update, or of an evaluation.

    Attributes:
        by_example: each example is hidden, there or not, and the number of examples is told; else the whole site.
        ring: of the masked tally, which must hold them.
        counts: what is counted of an evaluation; None: nothing.
    """

    asked: PrivateMetrics
    by_example: bool
    ring: RingPlan | None = None
    counts: Counts | None = None

    @property
    def told(self) -> dict[str, Any]:
        """What the worker is told: names with bounds, to which it cuts the values of single examples."""
        return {"cut" if self.by_example else "metrics": dict(sorted(self.asked.bounds.items()))}

    @property
    def in_words(self) -> str:
        """What the charge is for."""
        counted = () if self.counts is None else (f"counts for {', '.join(self.counts.names)}",)
        return f"{', '.join((*sorted(self.asked.bounds), *counted))}: epsilon {self.asked.epsilon:g}"

    def noisy(self, outcome: WorkOutcome) -> WorkOutcome:
        """The outcome with these numbers, and their noise, alone."""
        from hanse_privacy.noise.metrics import noisy_means, noisy_metrics
        from hanse_privacy.noise.source import NoiseSource

        if not self.by_example:
            metrics = self._held(noisy_metrics(outcome.metrics, self.asked, NoiseSource()))
            return replace(outcome, metrics=metrics, counted="")
        counted, metrics, examples = self._counted(outcome.counted), dict[str, float](), 0
        if self.asked.bounds:
            means = self.asked.model_copy(update={"epsilon": self._for_means})
            metrics, examples = noisy_means(outcome.metrics, outcome.examples, means, NoiseSource())
        elif self.counts is not None:
            from hanse_learning.pooled.nearest import examples_in

            examples = max(1, examples_in(self.counts, counted))
        if self.ring is not None:
            examples = min(examples, self.ring.largest_weight)
        return replace(outcome, metrics=self._held(metrics), examples=examples, counted=counted)

    @property
    def _for_means(self) -> float:
        """Of the epsilon, what counts leave: all numbers of an answer have noise by what one unit moves them."""
        if self.counts is None:
            return self.asked.epsilon
        means, cells = len(self.asked.bounds) + 1, self.counts.cells * self.counts.rows
        return self.asked.epsilon * means / (means + cells)

    def _counted(self, counted: str) -> str:
        """Counts with noise. A site that has counted nothing tells noise alone."""
        if self.counts is None:
            return ""
        from hanse_fabric.tensors.words import pack_words
        from hanse_learning.pooled.layout import scale_of
        from hanse_learning.pooled.noisy import nothing, with_noise
        from hanse_privacy.noise.source import NoiseSource

        given = counted or pack_words(nothing(self.counts))
        return with_noise(self.counts, scale_of(self.counts, self.asked), given, NoiseSource())

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

    Raises:
        HanseError: INVALID_INPUT for counts whose noise is not what is charged.
    """
    privacy = None if task.privacy is None else task.privacy.privacy
    if privacy is None or privacy.metrics is None or privacy.placement == "central":
        return None
    by_example = privacy.mechanism == "dp_sgd"
    if task.kind is TaskKind.PREPARE or (by_example and task.kind is TaskKind.TRAIN):
        return None
    counts = counts_in(task.config) if task.kind is TaskKind.EVALUATE else None
    if counts is not None and counts.scale is None:
        counts = None  # exact ones, which the policy forbids or leaves out
    if counts is not None:
        check_noise(counts, privacy)
    return CoveredMetrics(privacy.metrics, by_example, None if task.masking is None else task.masking.ring, counts)
