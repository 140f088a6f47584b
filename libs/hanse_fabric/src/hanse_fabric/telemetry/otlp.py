"""Export of traces and metrics to an OTLP/HTTP endpoint. Loaded only where one is set: it costs 20 MB of memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from hanse_fabric.telemetry.metrics import Counter, Gauge, Histogram, all_metrics
from hanse_fabric.telemetry.traces import use_tracer

EXPORT_TIMEOUT_S = 5
METRIC_INTERVAL_MS = 15_000


def start_export(service: str, endpoint: str) -> Callable[[], None]:
    """Begin to export; the returned function flushes and ends it (it blocks for some seconds at most)."""
    base = endpoint.rstrip("/")
    resource = Resource.create({"service.name": f"hanse-{service}"})
    tracers = TracerProvider(resource=resource)
    tracers.add_span_processor(
        BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{base}/v1/traces", timeout=EXPORT_TIMEOUT_S))
    )
    reader = PeriodicExportingMetricReader(
        OTLPMetricExporter(endpoint=f"{base}/v1/metrics", timeout=EXPORT_TIMEOUT_S),
        # OpenTelemetry's own variable; its default of a minute is longer than most alerts wait.
        export_interval_millis=float(os.environ.get("OTEL_METRIC_EXPORT_INTERVAL") or METRIC_INTERVAL_MS),
    )
    meters = MeterProvider(resource=resource, metric_readers=[reader])
    _mirror(meters)
    use_tracer(tracers.get_tracer("hanse"))

    def stop() -> None:
        use_tracer(None)
        tracers.shutdown()
        meters.shutdown(timeout_millis=EXPORT_TIMEOUT_S * 1000)

    return stop


def _mirror(meters: MeterProvider) -> None:
    """Show the process's metrics to OpenTelemetry. A histogram appears as its `_count` and `_sum`."""
    meter = meters.get_meter("hanse")
    for metric in all_metrics():
        if isinstance(metric, Counter):
            meter.create_observable_counter(
                metric.name, callbacks=[_reading(metric, metric.name)], unit=metric.unit, description=metric.description
            )
        elif isinstance(metric, Gauge):
            meter.create_observable_gauge(
                metric.name, callbacks=[_reading(metric, metric.name)], unit=metric.unit, description=metric.description
            )
        elif isinstance(metric, Histogram):
            for ending, unit in (("_count", "1"), ("_sum", metric.unit)):
                name = metric.name + ending
                meter.create_observable_counter(
                    name, callbacks=[_reading(metric, name)], unit=unit, description=metric.description
                )


def _reading(metric: Counter | Gauge | Histogram, wanted: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def read(_options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(value, labels) for name, labels, value in metric.samples() if name == wanted]

    return read
