"""Each call of the SDK carries a trace: the caller's own where there is one, else one that begins with the call."""

from __future__ import annotations

import re
import subprocess
import sys

from hanse.wire import trace_headers
from hanse_fabric.telemetry import span, trace_ids

FORM = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-01")


def test_a_call_inside_a_span_of_the_callers_belongs_to_its_trace() -> None:
    with span("owner"):
        ids = trace_ids()
        headers = trace_headers()
    found = FORM.fullmatch(headers["traceparent"])
    assert found is not None
    assert found.groups() == ids


def test_every_call_outside_a_span_begins_a_trace_of_its_own() -> None:
    first, second = (trace_headers()["traceparent"] for _ in range(2))
    assert FORM.fullmatch(first)
    assert FORM.fullmatch(second)
    assert first != second


def test_a_program_without_opentelemetry_does_not_load_it_for_its_calls() -> None:
    code = "import sys, hanse.wire as w; w.trace_headers(); assert 'opentelemetry' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
