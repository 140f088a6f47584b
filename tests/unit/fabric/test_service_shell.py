"""The shell, as the real process that a supervisor sees."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import forked_programs
from forked_programs import Programs

PROGRAM = """
import asyncio
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.service import service_main
from hanse_fabric.settings import ServiceSettings

async def tick():
    while True:
        await asyncio.sleep(3600)

async def fail(error):
    raise error

async def main(service):
{body}

service_main("aggregator", ServiceSettings, main)
"""
WAIT_S = 30


class Process:
    """A service with its log as it is written; `programs`: what it is forked from, else it is started."""

    def __init__(self, body: str, programs: Programs | None, **environment: str) -> None:
        text = PROGRAM.format(body="\n".join(f"    {line}" for line in body.splitlines()))
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HANSE_")} | environment
        if programs is not None:
            self.process = programs.start(text, environment=clean)
        else:
            argv = [sys.executable, "-c", text]
            self.process = subprocess.Popen(argv, env=clean, stderr=subprocess.PIPE, text=True)

    def line(self, message: str) -> dict[str, Any]:
        """The next line of the log with this message."""
        assert self.process.stderr is not None
        for text in self.process.stderr:
            entry: dict[str, Any] = json.loads(text)
            if entry["message"] == message:
                return entry
        raise AssertionError(f"the log ended without {message!r}")

    def end(self) -> tuple[int, list[dict[str, Any]]]:
        """Exit status and the rest of the log."""
        _, rest = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, [json.loads(line) for line in rest.splitlines()]


Start = Callable[..., Process]


@pytest.fixture(scope="module")
def programs() -> Iterator[Programs]:
    with forked_programs.started(["hanse_fabric.service"]) as programs:
        yield programs


@pytest.fixture
def start(programs: Programs) -> Iterator[Start]:
    started: list[Process] = []

    def begin(body: str, *, anew: bool = False, **environment: str) -> Process:
        started.append(Process(body, None if anew else programs, **environment))
        return started[-1]

    yield begin
    for each in started:
        each.process.kill()
        each.process.communicate(timeout=WAIT_S)


def get(address: str, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, timeout=WAIT_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


READY = """service.spawn(tick(), "tick")
service.set_ready()
import logging
logging.getLogger("test").info("at work")
await service.stopping.wait()
logging.getLogger("test").info("finishing")"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_service_finishes_its_work_on_a_signal_and_exits_with_zero(start: Start, number: signal.Signals) -> None:
    service = start(READY, anew=number is signal.SIGTERM)  # as a supervisor starts it
    service.line("at work")
    service.process.send_signal(number)
    status, log = service.end()
    assert status == 0
    assert [entry["message"] for entry in log] == ["finishing", "stopped"]


def test_health_tells_life_readiness_and_metrics(start: Start, tmp_path: Path) -> None:
    service = start(READY, HANSE_STORE_URL=f"file://{tmp_path}/store")
    address = service.line("starting")["health"]
    service.line("at work")
    assert get(address, "/healthz") == (200, '{"alive": true}')
    assert get(address, "/readyz") == (200, '{"ready": true, "missing": {}}')
    status, text = get(address, "/metrics")
    assert status == 200
    assert 'hanse_ready{service="aggregator"} 1' in text


def test_readiness_names_what_is_missing(start: Start) -> None:
    service = start("await service.stopping.wait()")
    status, text = get(service.line("starting")["health"], "/readyz")
    assert (status, json.loads(text)) == (503, {"ready": False, "missing": {"aggregator": "starting"}})


def test_readiness_is_told_while_the_service_adds_what_it_depends_on(start: Start) -> None:
    body = """async def store():
    return True
async def bus():
    service.add_check("store", store)
    return True
service.add_check("bus", bus)
"""
    service = start(body + READY)
    address = service.line("starting")["health"]
    service.line("at work")
    assert get(address, "/readyz") == (200, '{"ready": true, "missing": {}}')


def test_work_that_does_not_end_is_cut_short_after_the_grace(start: Start) -> None:
    service = start('__import__("logging").info("at work")\nawait tick()', HANSE_GRACE="0.1")
    service.line("at work")
    service.process.terminate()
    status, log = service.end()
    assert status == 0
    assert "work is cut short" in [entry["message"] for entry in log]


def test_a_failing_task_ends_the_service_with_the_errors_exit_status(start: Start) -> None:
    service = start(
        'service.spawn(fail(HanseError(ErrorCode.LOCKED, "state: held by another")), "x")\n'
        "await service.stopping.wait()"
    )
    status, log = service.end()
    assert status == ErrorExit.LOCKED
    assert log[-1]["message"] == "state: held by another"
    assert "error" not in log[-1]


def test_a_defect_shows_its_traceback_and_exits_with_one(start: Start) -> None:
    status, log = start('await fail(ValueError("a defect"))').end()
    assert status == 1
    assert "ValueError: a defect" in log[-1]["error"]


def test_a_wrong_setting_is_one_line_that_names_the_variable(start: Start) -> None:
    status, log = start("pass", HANSE_HEALTH_PORT="x").end()
    assert status == ErrorExit.INVALID_INPUT
    assert len(log) == 1
    assert "HANSE_HEALTH_PORT" in log[0]["message"]


def test_a_service_that_needs_a_bus_says_so_when_none_is_set(start: Start) -> None:
    status, log = start("service.bus").end()
    assert status == ErrorExit.INVALID_INPUT
    assert "HANSE_BUS_URL" in log[-1]["message"]


def test_a_taken_port_is_told_with_its_setting(start: Start) -> None:
    port = start(READY).line("starting")["health"].split(":")[1]
    status, log = start("pass", HANSE_HEALTH_PORT=port).end()
    assert status == ErrorExit.UNAVAILABLE
    assert "HANSE_HEALTH_PORT" in log[-1]["message"]


def test_a_service_that_waits_for_its_bus_still_stops_on_a_signal(start: Start) -> None:
    service = start("pass", HANSE_BUS_URL="nats://127.0.0.1:1")
    service.line("starting")
    service.process.terminate()
    status, _ = service.end()
    assert status == 0


class ErrorExit:
    """Exit statuses of the catalogue, written out: they are a promise."""

    INVALID_INPUT = 2
    UNAVAILABLE = 10
    LOCKED = 13
