"""Metrics of a round: the sites' numbers, their mean weighted by examples, and the worst site. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_learning.pooled.layout import Counts
from hanse_schemas.job import EarlyStop
from hanse_workflows.failures import RunFailure
from hanse_workflows.outcomes import Answer
from hanse_workflows.traffic import Traffic

if TYPE_CHECKING:  # numpy
    from hanse_learning.pooled.derive import Pooled
    from hanse_learning.pooled.scores import Words


@dataclass(frozen=True, slots=True)
class RoundMetrics:
    """`overall` has each metric's mean under its name and its smallest value under `<name>_min`, and under its name
    what is made of counts; `sites` has what each participant reported; `traffic` what it took to send.

    Attributes:
        undefined: why a metric of counts that the job names is not there.
        curves: what counts say besides (`hanse_learning.pooled.derive.Pooled`).
    """

    overall: dict[str, float] = field(default_factory=dict)
    sites: dict[str, dict[str, float]] = field(default_factory=dict)
    traffic: Traffic = field(default_factory=Traffic)
    undefined: dict[str, str] = field(default_factory=dict)
    curves: dict[str, Any] = field(default_factory=dict)


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


def with_counted(
    metrics: RoundMetrics, counts: Counts, answers: Iterable[Answer], *, optional: bool = False
) -> RoundMetrics:
    """Metrics with what plain answers have counted: of all examples together, and of each site's own.

    What a site has counted badly counts for nothing, as where it counts nothing.

    Args:
        optional: whether it is no news that nobody has counted.
    """
    from hanse_learning.pooled.derive import pooled, summed

    vectors = {answer.participant: words for answer in answers if (words := _words(answer, counts)) is not None}
    if optional and not vectors:
        return metrics
    whole = pooled(counts, summed(vectors, counts.words))
    each = {name: pooled(counts, words, errors=False).metrics for name, words in vectors.items()}
    least = {
        f"{name}_min": min(found[name] for found in each.values())
        for name in whole.metrics if each and all(name in found for found in each.values())
    }  # fmt: skip
    sites = {name: {**told, **each.get(name, {})} for name, told in metrics.sites.items()}
    return _joined(replace(metrics, sites=sites), whole, least)


def with_sum(
    metrics: RoundMetrics, counts: Counts, counted: str | None, *, sites: int | None = None, optional: bool = False
) -> RoundMetrics:
    """Metrics with what a masked sum of counts says.

    Args:
        sites: so many are in the sum; nothing is told where not all have counted, for then nobody can read it. None:
            nothing is hidden, and what some have counted is told.
        optional: whether it is no news that not all have counted.
    """
    from hanse_fabric.tensors.words import unpack_words
    from hanse_learning.pooled.derive import pooled, summed

    vectors = {} if counted is None else {"all": unpack_words(counted, counts.words, field="tally.counted")}
    found = pooled(counts, summed(vectors, counts.words))
    counting = int(found.curves.get("sites", 0))
    all_have = counting > 0 if sites is None else counting == sites
    if optional and not all_have:
        return metrics
    if sites is not None and not all_have:
        why = "not all sites have counted, and a masked sum of some cannot be read"
        found = replace(found, metrics={}, undefined=dict.fromkeys((*found.metrics, *found.undefined), why), curves={})
    return _joined(metrics, found, {})


def _joined(metrics: RoundMetrics, found: Pooled, least: Mapping[str, float]) -> RoundMetrics:
    # A mean of the sites' own gives way, where the job names the pooled metric.
    named = set(found.metrics) | set(found.undefined)
    kept = {
        name: value
        for name, value in metrics.overall.items()
        if name not in named and name.removesuffix("_min") not in named
    }
    return replace(
        metrics, overall={**kept, **found.metrics, **least}, undefined=found.undefined, curves=found.curves
    )  # fmt: skip


def _words(answer: Answer, counts: Counts) -> Words | None:
    from hanse_fabric.tensors.words import unpack_words

    if not answer.counted:
        return None
    try:
        return unpack_words(answer.counted, counts.words, field="counted")
    except HanseError:
        return None


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

    def observe(self, metrics: Mapping[str, float], undefined: Mapping[str, str] = MappingProxyType({})) -> Verdict:
        """Take in an evaluation. One that cannot tell the metric is no gain.

        Args:
            undefined: why a metric is not there.

        Raises:
            RunFailure: INVALID_INPUT when the sites do not report the metric.
        """
        rule = self._rule
        if rule is None:
            return Verdict()
        if rule.metric not in metrics and rule.metric.removesuffix("_min") in undefined:
            return self._no_gain(rule)
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
            return replace(self._no_gain(rule), best=best)
        return Verdict(best=best)

    def _no_gain(self, rule: EarlyStop) -> Verdict:
        self._without_gain += 1
        if rule.patience is None or self._without_gain < rule.patience:
            return Verdict()
        if self._to_beat is None:
            return Verdict(f"{rule.metric} could not be told for {rule.patience} evaluations")
        return Verdict(f"{rule.metric} has not improved on {self._to_beat:g} for {rule.patience} evaluations")
