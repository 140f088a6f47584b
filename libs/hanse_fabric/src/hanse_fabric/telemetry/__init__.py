"""Logs, traces and metrics. Light until an OTLP endpoint is set: then the exporters are loaded."""

from hanse_fabric.telemetry.logs import configure_logging
from hanse_fabric.telemetry.traces import extract, inject, span, trace_ids

__all__ = ["configure_logging", "extract", "inject", "span", "trace_ids"]
