"""A sink for OTLP over HTTP: what an OpenTelemetry collector would receive, spans with their service and parent."""

from __future__ import annotations

import gzip
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True, slots=True)
class Span:
    """One span, ids in hexadecimal."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    links: tuple[str, ...]


class OtlpSink:
    """Receives while the context lasts.

    Attributes:
        metrics: names of the metrics received, by service.
    """

    def __init__(self) -> None:
        sink = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                sink._take(self.path, body)
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._serving = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.arrived = threading.Condition()
        self.spans: list[Span] = []
        self.metrics: dict[str, set[str]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._serving.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._serving.join(10)
        self._server.server_close()

    def _take(self, path: str, body: bytes) -> None:
        with self.arrived:
            if path == "/v1/traces":
                self.spans += _spans(ExportTraceServiceRequest.FromString(body))
            else:
                for each in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    names = {metric.name for scope in each.scope_metrics for metric in scope.metrics}
                    self.metrics.setdefault(_service(each.resource), set()).update(names)
            self.arrived.notify_all()


def _spans(request: ExportTraceServiceRequest) -> list[Span]:
    return [
        Span(
            _service(each.resource), span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(),
            {pair.key: _value(pair.value) for pair in span.attributes},
            tuple(link.trace_id.hex() for link in span.links),
        )
        for each in request.resource_spans
        for scope in each.scope_spans
        for span in scope.spans
    ]  # fmt: skip


def _service(resource: Any) -> str:
    return next((str(pair.value.string_value) for pair in resource.attributes if pair.key == "service.name"), "")


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value") or "string_value")
