"""Programs that all processes of a session of tests share, each at a socket: whoever needs one first has it started.

Where pytest-xdist has several workers, the process that outlives them all starts the programs and ends them. Loading
what they load takes up to 5 s of a core, which each worker would spend else.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import forked_commands
import forked_sites
from hanse.embedded.nursery import DATAPODS, SERVICES, NurseryKind
from listening import listening

# Sites load the accounting of privacy and what studies compute when they first need it: a second and a half of a core,
# of each of hundreds.
SITES = replace(
    DATAPODS,
    program=(
        *DATAPODS.program, "dp_accounting.pld.privacy_loss_distribution", "hanse_datapod.worker.server.studies",
    ),
)  # fmt: skip


def _nursery(kind: NurseryKind, program: Path | None = None) -> tuple[Callable[[Path], list[str]], Mapping[str, str]]:
    """`program`: a file that does what the kind's own does, and more."""
    started = ["-m", kind.program[0]] if program is None else ["-P", str(program)]
    return lambda at: [sys.executable, *started, "--at", str(at), *kind.program[1:]], kind.environment


_PROGRAMS = {
    "services": _nursery(SERVICES),
    # Where services start again that were forked in the first one: it orders what it hashes otherwise.
    "successors": _nursery(SERVICES),
    "sites": _nursery(SITES, Path(forked_sites.__file__)),
    # It forks from one thread, so numpy, where it is loaded, must begin none.
    "commands": (
        lambda at: [sys.executable, "-P", forked_commands.__file__, str(at)],
        {"OPENBLAS_NUM_THREADS": "1"},
    ),
}
_NAME_BYTES = 100
_LIMIT_S = 120.0


class _Kept:
    """Those that run, which end with the session."""

    def __init__(self, folder: Path, ending: ExitStack) -> None:
        self._folder, self._ending = folder, ending
        self._running: dict[str, Path] = {}

    def answer(self, asking: socket.socket) -> None:
        """Answer who asks, one after the other, until the socket is shut: all start in one thread, and end with it."""
        while True:
            try:
                line, _ = asking.accept()
            except OSError:
                return
            with line:
                name = line.recv(_NAME_BYTES).decode()
                try:
                    said = str(self._program(name))
                except Exception as error:
                    said = f"{name}: {error}"
                with suppress(OSError):  # who has asked may have ended
                    line.sendall(said.encode())

    def _program(self, name: str) -> Path:
        if name not in self._running:
            command, environment = _PROGRAMS[name]
            at, log = self._folder / name, self._folder / f"{name}.log"
            self._ending.enter_context(listening(command(at), at, log, os.environ | {**environment}))
            self._running[name] = at
        return self._running[name]


@contextmanager
def kept(folder: Path) -> Iterator[Path]:
    """Programs run while inside, once they are asked for at this socket."""
    at = folder / "kept"
    with ExitStack() as ending, socket.socket(socket.AF_UNIX) as asking:
        asking.bind(str(at))
        asking.listen()
        answering = threading.Thread(target=_Kept(folder, ending).answer, args=(asking,), name="kept programs")
        answering.start()
        try:
            yield at
        finally:
            asking.shutdown(socket.SHUT_RDWR)
            answering.join()


def program(kept_at: Path, name: str) -> Path:
    """The socket of a program, which runs from here on.

    Raises:
        AssertionError: it does not start; with what it wrote.
    """
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(_LIMIT_S)
        line.connect(str(kept_at))
        line.sendall(name.encode())
        with line.makefile() as answer:
            said = answer.read()
    assert said.startswith("/"), said
    return Path(said)
