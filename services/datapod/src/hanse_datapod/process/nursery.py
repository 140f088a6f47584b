"""Several sites of one machine from one process that has loaded torch once: for demonstrations on small machines.

`python -m hanse_datapod.process.nursery` loads what a datapod and its worker need. Then, for each line of its stdin (a
JSON object: `name`, `argv` as after `python -m hanse_datapod`, `environment`, `log`), it forks a site, which forks its
worker before it does anything else. Both are processes of their own, as they would be without it. The nursery itself
reads nothing of a site's data and keys. It writes `{name, pid}` for each site that began and `{pid, status}` for each
that ended. All sites end when its stdin closes or it dies, by the kernel, on Linux only.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import selectors
import signal
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from hanse_fabric import garbage

_PR_SET_PDEATHSIG = 1
_READ_BYTES = 1 << 16


def main() -> int:
    """Serve until stdin closes; the exit status."""
    garbage.while_loading()
    _load()
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        print("threads were started while loading: no site can be forked safely", file=sys.stderr)
        return 1
    gc.freeze()
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
            _tell_ended()
        if 0 in ready:
            data = os.read(0, _READ_BYTES)
            if not data:
                return 0
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                _begin(json.loads(line), (woken, wake, selector.fileno()))


def _load() -> None:
    """All that a site and its worker would load themselves."""
    for name in ("hanse_datapod.process.service", "hanse_datapod.worker.server.training", "hanse_fabric.bus.nats"):
        import_module(name)


def _begin(asked: dict[str, Any], own: tuple[int, ...]) -> None:
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _be_site(asked, parent, own)
    _tell({"name": asked["name"], "pid": pid})


def _tell_ended() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        _tell({"pid": pid, "status": os.waitstatus_to_exitcode(status)})


def _tell(body: dict[str, Any]) -> None:
    os.write(1, json.dumps(body).encode() + b"\n")


def _be_site(asked: dict[str, Any], parent: int, own: tuple[int, ...]) -> NoReturn:
    """What the forked process does until its end."""
    status = 1
    try:
        os.setsid()
        _die_with(parent)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(asked["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for here, there in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(here, there)
        for descriptor in (log, nothing, *own):
            os.close(descriptor)
        _fork_worker()  # which shall not have the agent's settings
        os.environ.update(asked["environment"])
        from hanse_datapod.cli import main as datapod

        status = datapod(asked["argv"])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:  # the process's last resort: its log says why it ended
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _fork_worker() -> None:
    """Begin the site's worker while this process has one thread and nothing of the site."""
    from hanse_datapod.worker.client.adopted import Forked, prepare

    questions, asking = os.pipe()
    answering, answers = os.pipe()
    pid = os.fork()
    if pid:
        os.close(questions)
        os.close(answers)
        prepare(Forked(pid, asking, answering))
        return
    try:
        os.dup2(questions, 0)
        os.dup2(answers, 1)
        for descriptor in (questions, asking, answering, answers):
            os.close(descriptor)
        # Site code may run in it.
        for name in [name for name in os.environ if name.startswith("HANSE_")]:
            del os.environ[name]
        sys.argv = ["hanse_datapod.worker"]
        from hanse_datapod.worker.__main__ import main as worker

        worker()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _die_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before this was said
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
