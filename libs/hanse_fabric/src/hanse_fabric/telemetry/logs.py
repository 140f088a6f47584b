"""Logs: one JSON object a line with the ids of the trace, or text for terminals. Modules log by `logging` as ever;
`extra={...}` becomes fields."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

from hanse_fabric.telemetry.traces import trace_ids

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


class JsonFormatter(logging.Formatter):
    """One line of JSON: time (UTC), level, service, logger, message, trace_id, span_id, fields, error (traceback)."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "service": self._service,
            "logger": record.name,
            "message": record.getMessage(),
        }
        ids = trace_ids()
        if ids is not None:
            line["trace_id"], line["span_id"] = ids
        line |= {name: value for name, value in _extra(record).items() if name not in line}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextFormatter(logging.Formatter):
    """`12:00:00.000 info    message  name=value`, in local time."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).astimezone()
        fields = "".join(f"  {name}={value}" for name, value in _extra(record).items())
        line = f"{when:%H:%M:%S}.{int(record.msecs):03d} {record.levelname.lower():<7} {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure_logging(service: str, *, level: str = "info", form: str = "auto", stream: TextIO | None = None) -> None:
    """Send all logs to `stream` (stderr by default).

    Args:
        form: `json`, `text`, or `auto`: text when the stream is a terminal.
    """
    stream = stream or sys.stderr
    as_text = form == "text" or (form == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextFormatter() if as_text else JsonFormatter(service))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # The servers' clients log every reconnection at length; the bus itself logs what matters of it.
    for name in ("nats", "urllib3", "aiohttp.access", "asyncio"):
        logging.getLogger(name).setLevel(logging.WARNING)
    quiet_transport()


def quiet_transport() -> None:
    """Drop asyncio's warning about clients that half-close over TLS: nats-py does at each end of a connection."""
    logging.getLogger("asyncio").addFilter(_not_half_closing)


def _not_half_closing(record: logging.LogRecord) -> bool:
    return "eof_received" not in str(record.msg)
