"""Workers of pytest that are forked from one process end as those do that start as programs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

import forked_pytest

WAITS = """
import os, time
print(os.getpid(), flush=True)
try:
    time.sleep(20)
except KeyboardInterrupt:
    print("it has ended what its tests have started", flush=True)
"""


@dataclass(frozen=True)
class Serving:
    """The process that workers are forked from, which leads a group of its own."""

    at: Path
    pid: int

    def worker(self, text: str) -> subprocess.Popen[str]:
        """As pytest-xdist starts one."""
        command = [sys.executable, "-P", forked_pytest.__file__, str(self.at), "-u", "-c", text]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    at, nothing = tmp_path / "workers", tmp_path / "test_nothing.py"
    nothing.touch()
    monkeypatch.setattr(forked_pytest, "_LATE", ())
    for name, value in forked_pytest.WITHOUT_THREADS.items():
        monkeypatch.setenv(name, value)
    if not (pid := os.fork()):
        try:
            os.setsid()
            sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__  # this test's pytest keeps what is said there
            signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background nobody hears it
            forked_pytest.serve(at, ["-c", os.devnull, "--rootdir", str(tmp_path), str(nothing)])
        finally:
            os._exit(1)
    try:
        while not at.exists():
            assert os.waitpid(pid, os.WNOHANG) == (0, 0), "it has ended"
            time.sleep(0.01)
        yield Serving(at, pid)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def first_line(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout is not None
    return worker.stdout.readline()


def test_a_worker_that_is_interrupted_ends_what_its_tests_have_started(serving: Serving) -> None:
    """Ctrl-C is told to all processes of the terminal."""
    with serving.worker(WAITS) as worker:
        assert first_line(worker)
        os.killpg(serving.pid, signal.SIGINT)
        assert worker.communicate(timeout=30) == ("it has ended what its tests have started\n", None)
        assert worker.returncode == 0


def test_a_worker_ends_with_who_stands_for_it_and_that_one_with_the_worker(serving: Serving) -> None:
    with serving.worker(WAITS) as worker, serving.worker("import os\nos.abort()") as crashed:
        pid = int(first_line(worker))
        worker.kill()
        assert crashed.wait(30) == -signal.SIGABRT % 256
        end = time.monotonic() + 15
        with suppress(psutil.NoSuchProcess):
            while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                assert time.monotonic() < end, "it goes on"
                time.sleep(0.01)
