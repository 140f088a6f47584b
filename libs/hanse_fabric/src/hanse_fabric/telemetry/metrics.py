"""Metrics of this process and their text for Prometheus. Names and units are stable: they are in `catalogue`.

Counters only grow; gauges are set; histograms count values at or below each bound. All are safe from any thread.
"""

from __future__ import annotations

import bisect
import math
import threading
from collections.abc import Iterator, Mapping, Sequence

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Bounds for durations in seconds."""

_LOCK = threading.Lock()
_METRICS: dict[str, Metric] = {}

Labels = tuple[str, ...]


class Metric:
    """A named family of values, one per combination of label values."""

    kind = "untyped"

    def __init__(self, name: str, unit: str, description: str, labels: Labels = ()) -> None:
        self.name = name
        self.unit = unit
        self.description = description
        self.labels = labels
        self._values: dict[Labels, float] = {}
        with _LOCK:
            if name in _METRICS:
                raise ValueError(f"metric {name} is there already")
            _METRICS[name] = self

    def _key(self, labels: dict[str, str]) -> Labels:
        if tuple(sorted(labels)) != tuple(sorted(self.labels)):
            raise ValueError(f"{self.name}: labels {sorted(labels)} given, {sorted(self.labels)} expected")
        return tuple(labels[name] for name in self.labels)

    def samples(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """(name, labels, value) of every series."""
        with _LOCK:
            values = list(self._values.items())
        for key, value in values:
            yield self.name, dict(zip(self.labels, key, strict=True)), value

    def value(self, **labels: str) -> float:
        """The value of one series; 0 if it was never touched."""
        return self._values.get(self._key(labels), 0.0)


class Counter(Metric):
    """A total that only grows."""

    kind = "counter"

    def add(self, amount: float = 1.0, **labels: str) -> None:
        key = self._key(labels)
        with _LOCK:
            self._values[key] = self._values.get(key, 0.0) + amount


class Gauge(Metric):
    """A value that goes up and down."""

    kind = "gauge"

    def set(self, value: float, **labels: str) -> None:
        key = self._key(labels)
        with _LOCK:
            self._values[key] = value

    def replace(self, values: Mapping[Labels, float]) -> None:
        """Set all series at once, by label values in the order of `labels`; what is not named is forgotten."""
        if wrong := [key for key in values if len(key) != len(self.labels)]:
            raise ValueError(f"{self.name}: {wrong[0]} given, values of {self.labels} expected")
        with _LOCK:
            self._values = dict(values)

    def remove(self, **labels: str) -> None:
        """Forget a series, such as that of a run that ended."""
        with _LOCK:
            self._values.pop(self._key(labels), None)


class Histogram(Metric):
    """Counts of observed values by bound, with their sum."""

    kind = "histogram"

    def __init__(
        self, name: str, unit: str, description: str, labels: Labels = (), bounds: Sequence[float] = SECONDS
    ) -> None:
        super().__init__(name, unit, description, labels)
        self.bounds = (*bounds, math.inf)
        self._counts: dict[Labels, list[int]] = {}

    def observe(self, value: float, **labels: str) -> None:
        key = self._key(labels)
        with _LOCK:
            counts = self._counts.setdefault(key, [0] * len(self.bounds))
            counts[bisect.bisect_left(self.bounds, value)] += 1
            self._values[key] = self._values.get(key, 0.0) + value

    def samples(self) -> Iterator[tuple[str, dict[str, str], float]]:
        with _LOCK:
            series = [(key, list(counts), self._values[key]) for key, counts in self._counts.items()]
        for key, counts, total in series:
            labels = dict(zip(self.labels, key, strict=True))
            below = 0
            for bound, count in zip(self.bounds, counts, strict=True):
                below += count
                yield f"{self.name}_bucket", {**labels, "le": _number(bound)}, below
            yield f"{self.name}_sum", labels, total
            yield f"{self.name}_count", labels, below


def all_metrics() -> list[Metric]:
    """Every metric of this process, by name."""
    with _LOCK:
        return [_METRICS[name] for name in sorted(_METRICS)]


def prometheus_text() -> str:
    """All metrics in the text format 0.0.4 of Prometheus."""
    lines = []
    for metric in all_metrics():
        lines.append(f"# HELP {metric.name} {_escape(metric.description)} [{metric.unit}]")
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        for name, labels, value in metric.samples():
            shown = ",".join(f'{label}="{_escape(text)}"' for label, text in labels.items())
            lines.append(f"{name}{{{shown}}} {_number(value)}" if shown else f"{name} {_number(value)}")
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)
