"""The tasks of one run, as the process gets them in which that run's code is loaded; and that process, as its parent
has it: stopped between tasks, and ended when other work comes.
"""

from __future__ import annotations

import base64
import ctypes
import os
import random
import select
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from . import frames

MOST_BYTES = 1 << 40
_LOOK_S = 0.05
_PR_SET_PDEATHSIG = 1
_WALL = 0x40000000


class UnfitError(Exception):
    """What is wrong with the code or its answer, in words that hold no data.

    Args:
        found: what the code has answered with, which is for the site's own log.
    """

    def __init__(self, message: str, found: object = "") -> None:
        super().__init__(message)
        self.found = str(found)[:200]


class Tasks:
    """What the run's code is asked, one task after the other.

    Args:
        place: the folder of the code's files.
        requests: where tasks come from; None: `first` is the only one.
        over: file descriptor, to be told when nothing of a task is left to be done; None: nobody waits for that.
    """

    def __init__(
        self, place: Path, answers: BinaryIO, requests: BinaryIO | None = None, over: int | None = None,
        first: frames.Frame | None = None,
    ) -> None:  # fmt: skip
        self.place, self.answered = place, True
        self._answers, self._requests, self._over, self._first = answers, requests, over, first
        self._number: Any = None
        self._seed = 0

    def next(self) -> frames.Frame | None:
        """The next task; the one before is over with this. None: there is none."""
        if self._over is not None and self._number is not None:
            os.write(self._over, b".")
        frame, self._first = self._first, None
        if frame is None and self._requests is not None:
            frame = frames.read(self._requests, MOST_BYTES)
        if frame is not None:
            self._number, self._seed, self.answered = frame[0]["number"], frame[0]["seed"], False
        return frame

    def seed(self) -> None:
        """Seed the generators by the task, once the code is loaded: done again, also in a new process, it has the same
        bits."""
        seed_all(self._seed)

    def answer(self, told: dict[str, Any], made: frames.Arrays | None = None) -> None:
        """Answer it."""
        frames.write(self._answers, {"kind": "done", **told, "number": self._number}, made)
        self.answered = True


def seed_all(seed: int) -> None:
    """Seed the generators of Python, numpy and, where it is loaded, torch."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed % 2**63)


class LoadedRun:
    """A process, forked from one that has libraries loaded, which does the tasks of one run.

    Between tasks it is stopped by the kernel: it does nothing, and nothing of it runs beside other work.

    Args:
        of: what it is of: whatever differs in it needs another process.
        files: the code's, by name.
        work: does the tasks, in the new process.
        closed: a file that is closed there.
    """

    def __init__(
        self, of: str, files: dict[str, str], work: Callable[[Tasks], None], answers: BinaryIO, closed: BinaryIO
    ) -> None:
        self.of = of
        self._folder = tempfile.TemporaryDirectory(prefix="hanse-code-", ignore_cleanup_errors=True)
        place = Path(self._folder.name).resolve()
        lay_out(files, place)
        read, write = os.pipe()
        self._over, over = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            os.close(write)
            os.close(self._over)
            _be_the_child(lambda: work(Tasks(place, answers, os.fdopen(read, "rb"), over)), closed)
        os.close(read)
        os.close(over)
        self._tasks = os.fdopen(write, "wb")
        self._status: int | None = None

    def runs(self) -> bool:
        """Whether it can be asked."""
        if self._status is None:
            self._note(os.waitpid(self._pid, os.WNOHANG))
        return self._status is None

    def do(self, said: dict[str, Any], arrays: frames.Arrays) -> int | None:
        """Have a task done, which the process answers itself: its exit status where it has ended, None where it waits
        for the next."""
        os.kill(self._pid, signal.SIGCONT)
        with suppress(BrokenPipeError):  # it ends; its status tells why
            frames.write(self._tasks, said, arrays)
        while self.runs():
            # Who was started by it may hold the pipe open after its end, so both are looked at.
            if select.select([self._over], [], [], _LOOK_S)[0]:
                if os.read(self._over, 1):
                    os.kill(self._pid, signal.SIGSTOP)
                    self._note(os.waitpid(self._pid, os.WUNTRACED))
                else:
                    self._note(os.waitpid(self._pid, 0))
                break
        return self._status

    def end(self) -> None:
        """End it, and remove its files."""
        if self.runs():
            os.kill(self._pid, signal.SIGKILL)
            self._note(os.waitpid(self._pid, 0))
        with suppress(OSError):
            self._tasks.close()
        os.close(self._over)
        self._folder.cleanup()

    def end_strangers(self) -> None:
        """End stopped children of this process that it has not made: code can have such, and whoever looks for what a
        task has left would take one for the process that waits here."""
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG | os.WUNTRACED | _WALL))[0]:
                if found[0] == self._pid:
                    self._note(found)
                elif os.WIFSTOPPED(found[1]):
                    os.kill(found[0], signal.SIGKILL)

    def _note(self, found: tuple[int, int]) -> None:
        pid, status = found
        if pid and not os.WIFSTOPPED(status) and not os.WIFCONTINUED(status):
            self._status = os.waitstatus_to_exitcode(status)


def _be_the_child(work: Callable[[], None], closed: BinaryIO) -> None:
    status = 1
    try:
        with suppress(OSError, AttributeError):  # it does not outlive the datapod
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.close(closed.fileno())
        work()
        status = 0
    finally:
        with suppress(Exception):
            sys.stderr.flush()
        os._exit(status)


def lay_out(files: dict[str, str], place: Path) -> None:
    """Write the code's files, which came as base64.

    Raises:
        ValueError: for a file that would lie elsewhere.
    """
    for name, text in files.items():
        path = (place / name).resolve()
        if place not in path.parents:
            raise ValueError(f"file {name} lies outside of the code")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(text))
