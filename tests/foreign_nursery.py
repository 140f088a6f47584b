"""Interpreters of other frameworks are forked from one process, which has the framework and what code imports loaded.

It saves each site of a test up to four seconds of a core. A site names a program as its interpreter that asks that
process for a child, gives it its own pipes, and ends with it. The child is what the interpreter is else, with the same
program from there on; it is not in the sandbox of the worker that has started the program, which others tell of
(`unit/datapod_worker/test_foreign_code.py`, and one site of `e2e/test_foreign_run.py`). The file is the program of that
one process, too.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_BYTES = 1 << 20
_WHERE = "asked"
_PR_SET_PDEATHSIG = 1
_ASKING = """\
import json, os, socket
order = {{"environment": dict(os.environ), "folder": os.getcwd()}}
os.chdir({folder!r})
with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
    asking.connect({where!r})
    socket.send_fds(asking, [json.dumps(order).encode() + b"\\n"], [0, 1, 2])
    for descriptor in (0, 1):
        os.close(descriptor)
    os._exit(int(asking.recv(16) or b"1"))
"""


@contextmanager
def forking(folder: Path, kind: str, python: Path, imports: Sequence[str]) -> Iterator[Path]:
    """A program, while inside, which a site's policy can name as its interpreter.

    Args:
        folder: of the program's, which is made.
        kind: `flower` or `nvflare`.
        python: that has the framework.
        imports: what is loaded beside it, so far as it is there.
    """
    from hanse_datapod.worker.foreign import BEGIN
    from hanse_datapod.worker.foreign.interpreter import _environment

    # An environment of Python's, as the others are, in which an interpreter asks as soon as it has begun: the worker
    # knows an interpreter by its command line.
    program, base = folder / "bin" / "python", Path(sys.executable).resolve()
    packages = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    for place in (program.parent, packages):
        place.mkdir(parents=True)
    program.symlink_to(base)
    (folder / "pyvenv.cfg").write_text(f"home = {base.parent}\n")
    (packages / "asking.pth").write_text("import asking\n")
    (packages / "asking.py").write_text(_ASKING.format(folder=str(folder), where=_WHERE))
    command = [str(python), "-s", "-B", __file__, str(BEGIN.parent.parent), kind, *imports]
    nursery = subprocess.Popen(command, cwd=folder, env=_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert nursery.stdout is not None
        assert nursery.stdout.readline() == b"ready\n"
        yield program
    finally:
        nursery.communicate(timeout=60)  # it ends where nobody holds its stdin any more


def _serve(kind: str, imports: list[str]) -> None:
    """Fork for each that asks, until stdin is closed; a child ends with who asked for it, and with this process."""
    from hanse_shim import carrier  # type: ignore[import-not-found, unused-ignore]

    side = carrier.loaded(kind)
    carrier._import(imports, set())
    assert side is not None
    children: dict[socket.socket, int] = {}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.bind(_WHERE)
        door.listen()
        print("ready", flush=True)
        while True:
            for found in select.select([sys.stdin, door, *children], [], [], 0.2)[0]:
                if found is sys.stdin:
                    return
                if found is door:
                    asked = door.accept()[0]
                    children[asked] = _forked(carrier, kind, asked, [door, *children])
                else:  # who asked has been killed
                    os.kill(children[found], signal.SIGKILL)
            for asked, pid in list(children.items()):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    _tell(asked, os.waitstatus_to_exitcode(status))
                    del children[asked]


def _forked(carrier: Any, kind: str, asked: socket.socket, own: Sequence[socket.socket]) -> int:
    said, pipes, _, _ = socket.recv_fds(asked, _BYTES, 3)
    while not said.endswith(b"\n"):
        said += asked.recv(_BYTES)
    if not (pid := os.fork()):
        status = 1
        try:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            for there, here in enumerate(pipes):
                os.dup2(here, there)
                os.close(here)
            for each in (asked, *own):
                each.close()
            order = json.loads(said)
            os.environ.clear()
            os.environ.update(order["environment"])
            tempfile.tempdir = None  # the worker's own, which ends with it
            os.chdir(order["folder"])
            carrier.serve(kind)
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)
    for each in pipes:
        os.close(each)
    return pid


def _tell(asked: socket.socket, status: int) -> None:
    with suppress(OSError):  # it was killed
        asked.send(str(status if status >= 0 else 1).encode())
    asked.close()


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    importlib.import_module("hanse_shim")
    sys.path.remove(sys.argv[1])
    _serve(sys.argv[2], sys.argv[3:])
