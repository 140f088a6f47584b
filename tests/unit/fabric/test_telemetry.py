"""Logs with trace ids, traces across the bus, metrics as Prometheus reads them, export to a collector."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from hanse_fabric.bus.memory import MemoryBroker, MemoryBus
from hanse_fabric.subjects import AUDIT
from hanse_fabric.telemetry import ALONE, configure_logging, continued, extract, inject, span, trace_ids
from hanse_fabric.telemetry.metrics import Counter, Histogram, prometheus_text


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_logs_are_json_with_the_ids_of_the_trace_and_the_given_fields(stream: io.StringIO) -> None:
    configure_logging("aggregator", stream=stream)
    with span("reduce"):
        ids = trace_ids()
        logging.getLogger("hanse.test").info("reduced %d", 3, extra={"run": "r"})
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("hanse.test").exception("failed")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["trace_id"], first["span_id"]) == ids
    assert (first["service"], first["level"], first["message"], first["run"]) == (
        "aggregator",
        "info",
        "reduced 3",
        "r",
    )
    assert "ValueError: broken" in second["error"]
    assert "trace_id" not in second


def test_logs_for_a_terminal_are_text(stream: io.StringIO) -> None:
    configure_logging("aggregator", form="text", stream=stream)
    logging.getLogger("hanse.test").warning("slow", extra={"seconds": 3})
    assert stream.getvalue().endswith("warning slow  seconds=3\n")


async def test_a_trace_crosses_the_bus_in_the_messages_headers() -> None:
    assert AUDIT.stream is not None
    broker = MemoryBroker()
    sender, reader = MemoryBus(broker), MemoryBus(broker)
    with span("send"):
        sent = trace_ids()
        await sender.publish(AUDIT.of(project="triage"), b"{}", headers=inject())
    assert trace_ids() is None
    [record] = await reader.snapshot(AUDIT.stream, AUDIT.of(project="triage"))
    with span("receive", parent=extract(record.headers)):
        received = trace_ids()
    assert sent is not None
    assert received is not None
    assert received[0] == sent[0]
    assert received[1] != sent[1]


@pytest.mark.parametrize("headers", [{}, {"traceparent": "nonsense"}, {"traceparent": "00-" + "0" * 32 + "-1-01"}])
def test_headers_without_a_trace_begin_a_new_one(headers: dict[str, str]) -> None:
    assert extract(headers) is None
    with span("work", parent=extract(headers)):
        assert trace_ids() is not None
    assert inject() == {}


def test_metrics_are_shown_as_prometheus_reads_them() -> None:
    counter = Counter("hanse_test_total", "things", "Things done", ("outcome",))
    counter.add(outcome='a "quoted" one')
    counter.add(2, outcome="b")
    histogram = Histogram("hanse_test_seconds", "seconds", "Time taken", bounds=(0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(value)
    from prometheus_client.parser import text_string_to_metric_families

    families = {family.name: family for family in text_string_to_metric_families(prometheus_text())}
    assert {s.labels["outcome"]: s.value for s in families["hanse_test"].samples} == {'a "quoted" one': 1, "b": 2}
    seconds = {(s.name, s.labels.get("le")): s.value for s in families["hanse_test_seconds"].samples}
    assert seconds[("hanse_test_seconds_bucket", "0.1")] == 2
    assert seconds[("hanse_test_seconds_bucket", "+Inf")] == seconds[("hanse_test_seconds_count", None)] == 4
    assert seconds[("hanse_test_seconds_sum", None)] == pytest.approx(7.65)
    with pytest.raises(ValueError, match="labels"):
        counter.add(wrong="x")


def test_spans_and_metrics_reach_a_collector_when_an_endpoint_is_set() -> None:
    from hanse_fabric.telemetry.otlp import start_export

    received: dict[str, bytes] = {}

    class Sink(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        stop = start_export("aggregator", f"http://127.0.0.1:{server.server_port}")
        with span("reduce-for-export", project="triage"):
            assert trace_ids() is not None
        stop()
    finally:
        server.shutdown()
        serving.join(10)
        server.server_close()
    assert b"reduce-for-export" in received["/v1/traces"]
    assert b"hanse-aggregator" in received["/v1/traces"]
    assert b"hanse_ready" in received["/v1/metrics"] or b"hanse-aggregator" in received["/v1/metrics"]


def test_work_that_a_message_asked_for_belongs_to_its_trace_and_a_new_trace_can_link_to_it() -> None:
    with span("asked"):
        asked, headers = trace_ids(), inject()
    with continued(extract(headers)):
        assert trace_ids() == asked
        with span("alone", parent=ALONE, link=extract(headers)):
            alone = trace_ids()
    assert asked is not None
    assert alone is not None
    assert alone[0] != asked[0]
    with continued(extract({})):
        assert trace_ids() is None
