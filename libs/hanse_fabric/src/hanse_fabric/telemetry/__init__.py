"""Logs, traces and metrics. Light until an OTLP endpoint is set: then the exporters are loaded."""

from hanse_fabric.telemetry.logs import configure_logging
from hanse_fabric.telemetry.traces import ALONE, continued, extract, inject, span, trace_ids

__all__ = ["ALONE", "configure_logging", "continued", "extract", "inject", "span", "trace_ids"]
