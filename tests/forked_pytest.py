"""Workers of pytest-xdist, each forked from one process that has collected the session's tests once.

A worker still collects for itself, but all modules are there: it saves each some 7 s of a core. `serve` is that one
process; `main` is what xdist starts in Python's place: it stands for a worker, and ends with
it. The file is the program of both.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import random
import signal
import socket
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

WITHOUT_THREADS = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""Variables with which the one process starts: else a library that it loads begins a thread."""
_LATE = ("dp_accounting.pld.privacy_loss_distribution", "scipy.stats")
"""What code under test imports when it first needs it: each worker would load it for itself."""
_ORDER_BYTES = 1 << 16
_PR_SET_PDEATHSIG = 1


def serve(at: Path, arguments: list[str]) -> NoReturn:
    """Collect the tests that these arguments of pytest name, then fork for each who connects.

    Raises:
        SystemExit: they cannot be collected.
        RuntimeError: that started threads.
    """
    import pytest

    from hanse_fabric.forking import die_with

    if pytest.main([*arguments, "--collect-only", "--quiet", "-n", "0", "--dist", "no"]) not in (
        pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED,
    ):  # fmt: skip
        sys.exit(1)  # a worker would take a file that failed here for an empty one
    for name in _LATE:
        import_module(name)
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        raise RuntimeError("collecting tests started threads: no worker can be forked safely")
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps them
    # Ctrl-C is told to all: a worker ends what its tests have started, for which those before it have to stay.
    told_to_stop = signal.signal(signal.SIGINT, signal.SIG_IGN)
    own = os.getpid()
    with socket.socket(socket.AF_UNIX) as asking:
        asking.bind(str(at))
        asking.listen()
        while True:
            line, _ = asking.accept()
            if not os.fork():
                die_with(own)
                asking.close()
                _guard(line, told_to_stop)
            line.close()


def _guard(line: socket.socket, told_to_stop: Any) -> NoReturn:
    """Fork the worker, and end with it, or with who asked for it.

    Args:
        told_to_stop: what the worker does at Ctrl-C.
    """
    from hanse_fabric.forking import die_with

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    order, files, _, _ = socket.recv_fds(line, _ORDER_BYTES, 3)
    own = os.getpid()
    if not (worker := os.fork()):
        die_with(own)
        line.close()
        signal.signal(signal.SIGINT, told_to_stop)
        _work(json.loads(order), files)
    for descriptor in files:
        os.close(descriptor)
    if not os.fork():
        die_with(own)
        with suppress(OSError):
            line.recv(1)  # nothing comes: who asked has ended
        os.kill(own, signal.SIGKILL)
    line.sendall(b"%d" % os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]))
    os._exit(0)


def _work(order: dict[str, str], files: list[int]) -> NoReturn:
    status = 1
    try:
        for there, here in enumerate(files):
            os.dup2(here, there)
            os.close(here)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - the process's own
        for name in WITHOUT_THREADS:
            del os.environ[name]
        random.seed()
        sys.argv = ["-c"]
        exec(order["text"], {"__name__": "__main__"})  # noqa: S102 - as `python -c` does
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def main() -> int:
    """As xdist calls it: `forked_pytest.py SOCKET -u -c TEXT`; the worker's exit status."""
    at, text = sys.argv[1], sys.argv[-1]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever is asked to stop tells the worker
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(at)
        socket.send_fds(line, [json.dumps({"text": text}).encode()], [0, 1, 2])
        return int(line.recv(16) or b"1")


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(Path(sys.argv[2]), sys.argv[3:])
    sys.exit(main())
