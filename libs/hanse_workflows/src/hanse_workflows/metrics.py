"""Metrics of a round: the sites' numbers, their mean weighted by examples, and the worst site. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from hanse_fabric.errors import ErrorCode
from hanse_schemas.job import EarlyStop
from hanse_workflows.failures import RunFailure
from hanse_workflows.outcomes import Answer
from hanse_workflows.traffic import Traffic


@dataclass(frozen=True, slots=True)
class RoundMetrics:
    """`overall` has each metric's mean under its name and its smallest value under `<name>_min`; `sites` has what each
    participant reported; `traffic` what it took to send."""

    overall: dict[str, float] = field(default_factory=dict)
    sites: dict[str, dict[str, float]] = field(default_factory=dict)
    traffic: Traffic = field(default_factory=Traffic)


def summarize(answers: Iterable[Answer], *, prefix: str = "") -> RoundMetrics:
    """Example-weighted means over those sites that report a metric, in the order of their names (same bits always).

    A site without examples counts as one example, so that it is seen.
    """
    ordered = sorted(answers, key=lambda answer: answer.participant)
    names = sorted({name for answer in ordered for name in answer.metrics})
    overall: dict[str, float] = {}
    for name in names:
        pairs = [(answer.metrics[name], max(answer.examples, 1)) for answer in ordered if name in answer.metrics]
        overall[f"{prefix}{name}"] = _mean(pairs)
        overall[f"{prefix}{name}_min"] = min(value for value, _ in pairs)
    return RoundMetrics(overall, {answer.participant: dict(answer.metrics) for answer in ordered})


def _mean(pairs: Sequence[tuple[float, int]]) -> float:
    """The mean of values by weights; finite where these are, however large what one site reports."""
    total = sum(weight for _, weight in pairs)
    if math.isfinite(sum(abs(value) * weight for value, weight in pairs)):
        return math.fsum(value * weight for value, weight in pairs) / total
    return float(sum(Fraction(value) * weight for value, weight in pairs) / total)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an evaluation says of the run.

    Attributes:
        stop: why to stop; empty: the run goes on.
        best: whether no evaluation before was as good.
    """

    stop: str = ""
    best: bool = False


class EarlyStopping:
    """Watches one metric over the evaluations; never stops where the job does not ask for it."""

    def __init__(self, rule: EarlyStop | None) -> None:
        self._rule = rule
        self._best: float | None = None
        self._to_beat: float | None = None
        self._without_gain = 0

    def observe(self, metrics: Mapping[str, float]) -> Verdict:
        """Take in an evaluation.

        Raises:
            RunFailure: INVALID_INPUT when the sites do not report the metric.
        """
        rule = self._rule
        if rule is None:
            return Verdict()
        if rule.metric not in metrics:
            raise RunFailure(
                ErrorCode.INVALID_INPUT,
                f"stop.metric: the sites do not report {rule.metric!r}, but {', '.join(sorted(metrics)) or 'nothing'}",
                hint="name one of these metrics in the job's stop section",
            )
        value = metrics[rule.metric]
        sign = 1.0 if rule.mode == "max" else -1.0
        best = self._best is None or sign * (value - self._best) > 0
        self._best = value if best else self._best
        if rule.target is not None and sign * value >= sign * rule.target:
            return Verdict(f"{rule.metric} reached {value:g} (target {rule.target:g})", best)
        if self._to_beat is None or sign * (value - self._to_beat) > rule.min_delta:
            self._to_beat, self._without_gain = value, 0
        else:
            self._without_gain += 1
        if rule.patience is not None and self._without_gain >= rule.patience:
            waited = f"{rule.metric} has not improved on {self._to_beat:g} for {rule.patience} evaluations"
            return Verdict(waited, best)
        return Verdict(best=best)
