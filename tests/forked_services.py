"""Services of a hub whose parts a test starts one by one, forked in the session's nursery, where starting a program is
not the point: each is a process of its own with its environment, folder and log, as a program would be."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from hanse.embedded.nursery import NurseryKind


class ForkedService:
    """What is used of `subprocess.Popen`."""

    def __init__(self, module: str, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._module = module
        self._ended = threading.Event()

    def poll(self) -> int | None:
        """Its exit status, once it has ended."""
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Its exit status when it has ended, negative for a signal's number."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(self._module, timeout)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def end(self, status: int) -> None:
        """Note that it has ended."""
        self.returncode = status
        self._ended.set()


class ForkedServices:
    """Starts services until its connection to the nursery is closed."""

    def __init__(self, kind: NurseryKind, line: socket.socket) -> None:
        self._kind, self._line = kind, line
        self._names = itertools.count()
        self._running: dict[int, ForkedService] = {}
        self._answers = line.makefile()
        self._begun: dict[str, ForkedService | None] = {}
        self._told = threading.Condition()
        threading.Thread(target=self._read, name="forked services", daemon=True).start()

    def start(self, module: str, environment: Mapping[str, str], log: Path, *words: str) -> ForkedService:
        """As `python -m module words`, with this environment alone, in the log's folder."""
        name = f"{module} {next(self._names)}"
        order = {
            "name": name, "argv": [module, *words], "folder": str(log.parent), "log": str(log),
            "environment": {**environment, **self._kind.environment},
        }  # fmt: skip
        self._line.sendall(json.dumps(order).encode() + b"\n")
        with self._told:
            assert self._told.wait_for(lambda: name in self._begun, 60), "the nursery does not answer"
            service = self._begun[name]
        assert service is not None, "another environment of Python's own: such a service is started as a program"
        return service

    def _read(self) -> None:
        for line in self._answers:
            told = json.loads(line)
            if "name" not in told:
                self._running.pop(told["pid"]).end(told["status"])
                continue
            service = ForkedService(told["name"].split()[0], told["pid"]) if told["pid"] else None
            if service is not None:
                self._running[service.pid] = service
            with self._told:
                self._begun[told["name"]] = service
                self._told.notify_all()


@contextmanager
def forked_services(kind: NurseryKind) -> Iterator[ForkedServices]:
    """All that still run end with the block."""
    assert kind.shared is not None
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(kind.shared))
        services = ForkedServices(kind, line)
        try:
            yield services
        finally:
            line.shutdown(socket.SHUT_RDWR)
