"""Serves tasks in the foreign interpreter: each in a process of its own, forked from one that has its libraries loaded.

So every task finds the code as it is at its start, a repeated one gives the same bits, and nobody waits for imports.
"""

from __future__ import annotations

import base64
import ctypes
import os
import random
import signal
import sys
import tempfile
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from . import frames

_ANSWERED = 17
_LATE = {"torch": "torch._dynamo"}
"""What libraries import when they are first used: a second of every task's otherwise."""
_MOST_BYTES = 1 << 40
_PR_SET_PDEATHSIG = 1


class UnfitError(Exception):
    """What is wrong with the code or its answer, in words that hold no data."""


def loaded(kind: str) -> Any:
    """The module that speaks for a framework, which it imports."""
    from . import flare_side, flower_side

    side = {"flower": flower_side, "nvflare": flare_side}[kind]
    side.load()
    return side


def serve(kind: str) -> None:
    """Serve until the pipe is closed."""
    side = loaded(kind)
    requests, answers = _own_pipes()
    frames.write(answers, {"kind": "ready", "version": side.version(), "python": sys.version.split()[0]})
    while (frame := frames.read(requests, _MOST_BYTES)) is not None:
        said, arrays = frame
        for name in (*said["imports"], *(late for early, late in _LATE.items() if early in said["imports"])):
            # An import may raise anything; where the code does it itself, it says what.
            with suppress(BaseException):
                import_module(name)
        with tempfile.TemporaryDirectory(prefix="hanse-code-", ignore_cleanup_errors=True) as folder:
            place = Path(folder).resolve()
            _lay_out(said["files"], place)
            if len(list(Path("/proc/self/task").iterdir())) > 1:
                # A process with threads is not forked. This one does the task, and another takes its place.
                _answer(side, said, arrays, place, answers)
                return
            status = _in_a_process_of_its_own(side, said, arrays, place, requests, answers)
        # Last, when nothing of the task is left: its process, and its files.
        frames.write(answers, {"kind": "over", "number": said["number"], "status": status})


def _in_a_process_of_its_own(
    side: Any, said: dict[str, Any], arrays: frames.Arrays, place: Path, requests: BinaryIO, answers: BinaryIO
) -> int:
    """Its exit status."""
    child = os.fork()
    if not child:
        status = 1
        try:
            with suppress(OSError, AttributeError):  # it does not outlive the datapod
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            os.close(requests.fileno())
            _answer(side, said, arrays, place, answers)
            status = _ANSWERED
        finally:
            with suppress(Exception):
                sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _answer(side: Any, said: dict[str, Any], arrays: frames.Arrays, place: Path, answers: BinaryIO) -> None:
    told: dict[str, Any]
    made: frames.Arrays = {}
    try:
        _seed(said["seed"])
        sys.path.insert(0, str(place))
        os.chdir(place)
        told, made = side.work(said, arrays, place)
        told["kind"] = "done"
    except UnfitError as error:
        told = {"kind": "unfit", "message": str(error)}
    # The code may raise anything, and end with SystemExit.
    except BaseException as error:
        traceback.print_exception(error)
        told = {"kind": "raised", "type": type(error).__name__, "message": str(error)[:2000]} | _where(error, place)
    frames.write(answers, told | {"number": said["number"]}, made)


def _where(error: BaseException, place: Path) -> dict[str, Any]:
    """The last line of the code's own files that an exception went through."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if place in path.parents:
            return {"file": str(path.relative_to(place)), "line": frame.lineno}
    return {}


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed % 2**63)


def _lay_out(files: dict[str, str], place: Path) -> None:
    for name, text in files.items():
        path = (place / name).resolve()
        if place not in path.parents:
            raise ValueError(f"file {name} lies outside of the code")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(text))


def _own_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Take stdin and stdout away from everybody else: what the code prints goes to the datapod's log."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdin, sys.stdout = open(os.devnull), sys.stderr  # noqa: SIM115, PTH123 - for the process's lifetime
    return requests, answers
