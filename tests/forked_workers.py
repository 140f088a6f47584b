"""Sites' workers of a session's tests are forked from one process, which has loaded torch once.

It saves each of hundreds 1.5 s of a core. The worker is what it is else: a process of its own, a child of the test's,
with the same program, environment, session and sandbox. The file is the program of that one process, too.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from hanse_datapod.worker.client import process
from hanse_datapod.worker.client.adopted import AdoptedProcess, Forked
from hanse_fabric import forking

_NEEDED = ("hanse_datapod.worker.__main__", "hanse_datapod.worker.server.training")
_PR_SET_CHILD_SUBREAPER = 36
_BYTES = 1 << 20


class Nursery:
    """The process that workers are forked from."""

    def __init__(self, asking: socket.socket, environment: dict[str, str]) -> None:
        self._asking, self._python = asking, forking._of_python(environment)

    async def worker(self) -> AdoptedProcess | None:
        """A new worker; None where its interpreter would have to be started with other variables."""
        environment = process._environment(process._TRAINING, 1)
        if forking._of_python(environment) != self._python:
            return None
        questions, asking = os.pipe()
        answering, answers = os.pipe()
        order = json.dumps({"environment": environment, "folder": str(Path.cwd())}).encode()
        _adopt_orphans(True)
        try:
            socket.send_fds(self._asking, [order], [questions, answers, 2])
            pid = int(self._asking.recv(_BYTES))
        finally:
            _adopt_orphans(False)
            os.close(questions)
            os.close(answers)
        return await AdoptedProcess.of(Forked(pid, asking, answering))


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


def _be(order: dict[str, dict[str, str]], pipes: list[int], own: tuple[int, ...]) -> NoReturn:
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
        os.chdir(str(order["folder"]))
        sys.argv = ["hanse_datapod.worker"]
        from hanse_datapod.worker.__main__ import main

        main()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve()
