"""Processes from one that has loaded their modules once: started in a hundredth of the time, and in less memory.

`serve` answers each line of its stdin (a JSON object: `name`, `argv` as after `python -m`, `environment`, `folder`,
`log`) with a fork, which is a process of its own, as it would be without it: session, environment, folder, log. It
writes `{name, pid}` for each that began and `{pid, status}` for each that ended; a pid of 0 says that it is to be
started as a program, for its environment has other PYTHON* variables, which an interpreter reads at its start alone.
All end when stdin closes or the serving process dies, by the kernel, on Linux only.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from hanse_fabric import garbage, plugins

_PR_SET_PDEATHSIG = 1
_READ_BYTES = 1 << 16

Order = dict[str, Any]
Run = Callable[[Order], int]
"""What a forked process does: of what was asked to its exit status."""


def load(modules: Sequence[str]) -> None:
    """Load what the forked processes need.

    Raises:
        RuntimeError: a module started a thread, so that nothing can be forked safely.
    """
    garbage.while_loading()
    for name in modules:
        import_module(name)
    plugins.names(plugins.STRATEGIES)  # which reads what all installed packages offer
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        raise RuntimeError("threads were started while loading: no process can be forked safely")
    gc.freeze()


def serve(run: Run) -> int:
    """Fork for each line of stdin until it closes; the exit status."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(wake)
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ)
    selector.register(woken, selectors.EVENT_READ)
    pending = b""
    while True:
        ready = {key.fd for key, _ in selector.select()}
        if woken in ready:
            os.read(woken, _READ_BYTES)
            _write_ended()
        if 0 in ready:
            data = os.read(0, _READ_BYTES)
            if not data:
                return 0
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                _begin(json.loads(line), (woken, wake, selector.fileno()), run)


def serve_at(path: Path, run: Run) -> NoReturn:
    """Serve each who connects to a socket at `path` in a process of its own, whose forks end with the connection.

    This user alone may connect: who does has programs run as this user.
    """
    listening = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o077)
    listening.bind(str(path))
    os.umask(mask)
    listening.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps them
    parent = os.getpid()
    while True:
        connection, _ = listening.accept()
        if os.fork():
            connection.close()
            continue
        die_with(parent)
        listening.close()
        os.dup2(connection.fileno(), 0)
        os.dup2(connection.fileno(), 1)
        connection.close()
        os._exit(serve(run))


def die_with(parent: int) -> None:
    """Have the kernel end this process when its parent, of this number, has ended."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before this was said
        os._exit(1)


def _begin(asked: Order, own: tuple[int, ...], run: Run) -> None:
    pid, parent = 0, os.getpid()
    if _of_python(asked["environment"]) == _of_python(os.environ):
        pid = os.fork()
        if pid == 0:
            _be(asked, parent, own, run)
    _write_line({"name": asked["name"], "pid": pid})


def _of_python(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith("PYTHON")}


def _write_ended() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        _write_line({"pid": pid, "status": os.waitstatus_to_exitcode(status)})


def _write_line(body: dict[str, Any]) -> None:
    os.write(1, json.dumps(body).encode() + b"\n")


def _be(asked: Order, parent: int, own: tuple[int, ...], run: Run) -> NoReturn:
    """What the forked process does until its end."""
    status = 1
    try:
        os.setsid()
        die_with(parent)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(asked["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for here, there in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(here, there)
        for descriptor in (log, nothing, *own):
            os.close(descriptor)
        os.chdir(asked["folder"])
        plugins.look_again()
        status = run(asked)
    except SystemExit as end:
        status = _status_of(end)
    except BaseException:  # the process's last resort: its log says why it ended
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _status_of(end: SystemExit) -> int:
    """As the interpreter takes it."""
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1
