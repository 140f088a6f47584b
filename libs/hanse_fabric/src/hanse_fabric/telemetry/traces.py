"""Traces: every piece of work has a trace id, which crosses the bus in the `traceparent` header of W3C.

Without an exporter spans are ids only (the OpenTelemetry API's non-recording spans), so that logs of several services
can be joined by trace id at no cost; `otlp` puts the SDK's tracer in their place.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, TraceFlags, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

Attribute = str | int | float | bool

_FORM = TraceContextTextMapPropagator()
_CARRIES = "traceparent"
_tracer: Tracer | None = None


def use_tracer(tracer: Tracer | None) -> None:
    """Record spans with `tracer` from now on; None: ids only."""
    global _tracer
    _tracer = tracer


ALONE = Context()
"""As `parent` of a span: it begins a trace of its own."""


@contextmanager
def span(
    name: str, *, parent: Context | None = None, link: Context | None = None, **attributes: Attribute
) -> Iterator[None]:
    """A piece of work: logs and messages inside carry its ids.

    Args:
        name: stable and of few values, such as `reduce`; what varies goes into attributes.
        parent: from `extract`, when the work was asked for by a message; None: the current span.
        link: of another trace, that this one came of.
    """
    if _tracer is not None:
        links = [] if link is None else [Link(trace.get_current_span(link).get_span_context())]
        with _tracer.start_as_current_span(name, context=parent, attributes=attributes, links=links):
            yield
        return
    above = trace.get_current_span(parent).get_span_context()
    own = SpanContext(
        trace_id=above.trace_id if above.is_valid else secrets.randbits(128) | 1,
        span_id=secrets.randbits(64) | 1,
        is_remote=False,
        trace_flags=above.trace_flags if above.is_valid else TraceFlags(TraceFlags.SAMPLED),
    )
    token = attach(trace.set_span_in_context(NonRecordingSpan(own), parent))
    try:
        yield
    finally:
        detach(token)


@contextmanager
def continued(parent: Context | None) -> Iterator[None]:
    """What is done inside belongs to the span that a message's headers carry; nothing changes where they carry none."""
    if parent is None:
        yield
        return
    token = attach(parent)
    try:
        yield
    finally:
        detach(token)


def inject() -> dict[str, str]:
    """Headers that carry the current span to whoever reads the message; empty outside of any span."""
    headers: dict[str, str] = {}
    if trace.get_current_span() is not trace.INVALID_SPAN:
        _FORM.inject(headers)
    return headers


def extract(headers: Mapping[str, str]) -> Context | None:
    """The span that a message's headers carry, as `parent` of `span`; None where they carry none."""
    carried = {name.lower(): value for name, value in headers.items()}
    if _CARRIES not in carried:
        return None
    context = _FORM.extract(carried, context=Context())
    return context if trace.get_current_span(context).get_span_context().is_valid else None


def trace_ids() -> tuple[str, str] | None:
    """(trace id, span id) of the current span in hexadecimal; None outside of any."""
    current = trace.get_current_span().get_span_context()
    if not current.is_valid:
        return None
    return trace.format_trace_id(current.trace_id), trace.format_span_id(current.span_id)
