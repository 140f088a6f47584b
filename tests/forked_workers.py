"""Sites' workers of a session's tests are forked from one process, which has loaded torch once.

It saves each of hundreds 1.5 s of a core. The worker is what it is else: a process of its own, a child of the test's,
with the same program, environment, session and sandbox. Where a test says so, the processes (ranks) of a training are
forked from the worker, too. The file is the program of that one process, too.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NoReturn

from hanse_datapod.worker.client import process
from hanse_datapod.worker.client.adopted import AdoptedProcess, Forked
from hanse_fabric import forking

_NEEDED = (
    "hanse_datapod.worker.__main__", "hanse_datapod.worker.server.training", "hanse_datapod.worker.ranks.launch",
    "hanse_datapod.worker.ranks.__main__",
)  # fmt: skip
RANK_NAME = "hanse-rank"
"""Of a forked rank's process, whose command line is the worker's."""
_RANK = "hanse_datapod.worker.ranks"
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_BYTES = 1 << 20


class Nursery:
    """The process that workers are forked from.

    Attributes:
        ranks: whether workers from here on fork the processes of a training, else started as programs.
    """

    def __init__(self, asking: socket.socket, environment: dict[str, str]) -> None:
        self._asking, self._python = asking, forking._of_python(environment)
        self.ranks = False

    async def worker(self) -> AdoptedProcess | None:
        """A new worker; None where its interpreter would have to be started with other variables."""
        environment = process._environment(process._TRAINING, 1)
        if forking._of_python(environment) != self._python:
            return None
        questions, asking = os.pipe()
        answering, answers = os.pipe()
        try:
            pid = self._forked({"environment": environment, "ranks": self.ranks}, [questions, answers, 2])
        finally:
            os.close(questions)
            os.close(answers)
        return await AdoptedProcess.of(Forked(pid, asking, answering))

    def run(self, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A test's own program to its end, in a process as workers have it; as `python -c` takes it."""
        with TemporaryFile("w+") as stdout, TemporaryFile("w+") as stderr:
            program = self.start(text, *arguments, environment=os.environ, says=(stdout.fileno(), stderr.fileno()))
            program.wait()
            stdout.seek(0)
            stderr.seek(0)
            return subprocess.CompletedProcess(program.args, program.returncode, stdout.read(), stderr.read())

    def start(
        self, text: str, *arguments: str, environment: Mapping[str, str], says: tuple[int, int] = (1, 2)
    ) -> subprocess.Popen[bytes]:
        """Such a program that goes on; `says`: its stdout and stderr."""
        with Path(os.devnull).open() as nothing:
            order = {"environment": dict(environment), "program": (text, *arguments)}
            return _as_popen(self._forked(order, [nothing.fileno(), *says]), ("-c", text, *arguments))

    def _forked(self, order: dict[str, Any], pipes: list[int]) -> int:
        """A new process, a child of this one, with these as stdin, stdout and stderr."""
        _adopt_orphans(True)
        try:
            socket.send_fds(self._asking, [json.dumps(order | {"folder": str(Path.cwd())}).encode()], pipes)
            return int(self._asking.recv(_BYTES))
        finally:
            _adopt_orphans(False)


@contextmanager
def started() -> Iterator[Nursery]:
    """Such a process, while inside."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = process._environment(process._TRAINING, 1)
    with there:
        nursery = subprocess.Popen([sys.executable, "-P", __file__], stdin=there.fileno(), env=environment)
    try:
        with here:
            yield Nursery(here, environment)
    finally:
        nursery.wait(60)  # it ends where nobody can give an order any more


def _adopt_orphans(whether: bool) -> None:
    """Have processes whose parent has ended become this one's children, not the system's."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(whether), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _serve() -> None:
    """Fork for each order until nobody can give one any more."""
    orders = socket.socket(fileno=os.dup(0))
    forking.load(_NEEDED)
    while True:
        order, pipes, _, _ = socket.recv_fds(orders, _BYTES, 3)
        if not order:
            return
        told, telling = os.pipe()
        between = os.fork()
        if not between:
            if worker := os.fork():  # which becomes the test's child when this one ends
                os.write(telling, str(worker).encode())
                os._exit(0)
            _be(json.loads(order), pipes, (orders.fileno(), told, telling))
        os.waitpid(between, 0)
        orders.send(os.read(told, _BYTES))
        for descriptor in (told, telling, *pipes):
            os.close(descriptor)


def _be(order: dict[str, Any], pipes: list[int], own: tuple[int, ...]) -> NoReturn:
    """What the worker does until its end."""
    status = 1
    try:
        os.setsid()
        for there, here in enumerate(pipes):
            os.dup2(here, there)
        for descriptor in (*pipes, *own):
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(order["environment"])
        os.chdir(order["folder"])
        if "program" in order:
            text, *arguments = order["program"]
            sys.argv = ["-c", *arguments]
            exec(compile(text, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - the test's own
            sys.stdout.flush()
            os._exit(0)
        sys.argv = ["hanse_datapod.worker"]
        if order["ranks"]:
            from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

            SubprocessHandler._popen = _fork_rank  # type: ignore[method-assign]
        from hanse_datapod.worker.__main__ import main

        main()
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _fork_rank(self: Any, args: tuple[str, ...], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """As torch's elastic launch starts a process, which is below the worker either way."""
    assert args[:4] == (sys.executable, "-P", "-m", _RANK), args
    pid = os.fork()
    if not pid:
        _be_rank(args[4], environment, (self._stdout, self._stderr))
    return _as_popen(pid, args)


def _as_popen(pid: int, args: tuple[str, ...]) -> subprocess.Popen[bytes]:
    """A child that was forked, as one that was started."""
    forked = subprocess.Popen.__new__(subprocess.Popen)
    forked.__dict__.update(
        pid=pid, args=args, returncode=None, stdin=None, stdout=None, stderr=None, _child_created=True,
        _waitpid_lock=threading.Lock(),
    )  # fmt: skip
    return forked


def _be_rank(at: str, environment: dict[str, str], logs: tuple[Any, Any]) -> NoReturn:
    """What the rank does until its end: none of what the worker has open is its own."""
    status = 1
    try:
        os.setsid()
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        for descriptor, log in zip((1, 2), logs, strict=True):
            if log is not None:
                os.dup2(log.fileno(), descriptor)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        ctypes.CDLL(None).prctl(_PR_SET_NAME, RANK_NAME.encode())
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = [_RANK, at]
        status = import_module(f"{_RANK}.__main__").main()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve()
