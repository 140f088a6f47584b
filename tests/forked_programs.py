"""Programs that tests have as text, each a process of its own that is forked from one which has loaded what they need.

Loading it takes most of a short program's time: torch's some two seconds of a core. Such a process is what `python -c`
makes it else: a child of the test's, with its own environment, pipes and status. The file is the program of that one
process, too.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

_BYTES = 1 << 20


class Programs:
    """Runs programs while their nursery lives."""

    def __init__(self, asking: socket.socket) -> None:
        self._asking = asking

    def start(self, text: str, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """As `Popen([sys.executable, "-c", text, *arguments])` with pipes of stdout and stderr does.

        Args:
            environment: its whole environment; None: this process's. What Python itself reads as it begins (of
                PYTHON*) was read before.
        """
        from forked_workers import _adopt_orphans  # not for the program that this file is

        told, stdout = os.pipe()
        said, stderr = os.pipe()
        order = {"text": text, "arguments": arguments, "environment": dict(environment or os.environ)}
        _adopt_orphans(True)
        try:
            socket.send_fds(self._asking, [json.dumps(order).encode()], [stdout, stderr])
            pid = int(self._asking.recv(_BYTES))
        finally:
            _adopt_orphans(False)
            os.close(stdout)
            os.close(stderr)
        forked: subprocess.Popen[str] = subprocess.Popen.__new__(subprocess.Popen)
        forked.__dict__.update(
            pid=pid, args=[sys.executable, "-c", text, *arguments], returncode=None, stdin=None, text_mode=True,
            stdout=open(told), stderr=open(said), encoding=None, errors=None, _child_created=True,  # noqa: SIM115, PTH123
            _communication_started=False, _input=None, _waitpid_lock=threading.Lock(), _sigint_wait_secs=0.25,
        )  # fmt: skip
        return forked

    def run(self, text: str, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Such a program to its end."""
        with self.start(text, *arguments) as program:
            try:
                stdout, stderr = program.communicate(timeout=timeout)
            except BaseException:
                program.kill()
                raise
        return subprocess.CompletedProcess(program.args, program.returncode, stdout, stderr)


@contextmanager
def started(loaded: Sequence[str]) -> Iterator[Programs]:
    """The process that programs are forked from, with these modules loaded, while inside."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with there:
        nursery = subprocess.Popen([sys.executable, "-P", __file__, *loaded], stdin=there.fileno())
    try:
        with here:
            yield Programs(here)
    finally:
        nursery.wait(60)  # it ends where nobody can give an order any more


def _serve(loaded: Sequence[str]) -> dict[str, Any] | None:
    """Fork for each order until nobody can give one any more; in what is forked: its order."""
    orders = socket.socket(fileno=os.dup(0))
    for module in loaded:
        import_module(module)
    while True:
        order, pipes, _, _ = socket.recv_fds(orders, _BYTES, 2)
        if not order:
            return None
        told, telling = os.pipe()
        between = os.fork()
        if not between:
            if program := os.fork():  # which becomes the test's child when this one ends
                os.write(telling, str(program).encode())
                os._exit(0)
            os.setsid()
            for there, here in enumerate(pipes, 1):
                os.dup2(here, there)
            for descriptor in (*pipes, told, telling, orders.fileno()):
                os.close(descriptor)
            orders.detach()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            return dict(json.loads(order))
        os.waitpid(between, 0)
        orders.send(os.read(told, _BYTES))
        for descriptor in (told, telling, *pipes):
            os.close(descriptor)


if __name__ == "__main__":
    if (found := _serve(sys.argv[1:])) is not None:
        os.environ.clear()
        os.environ.update(found["environment"])
        sys.argv = ["-c", *found["arguments"]]
        exec(compile(found["text"], "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - the test's own
