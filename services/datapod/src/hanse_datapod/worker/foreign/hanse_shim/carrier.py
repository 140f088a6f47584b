"""Serves tasks in the foreign interpreter. What does them is forked from a process that has its libraries loaded, one
process for each run, so nobody waits for imports, and what a run's code has read and made stays until its next task.

A run's process finds the code as it is at its first task. It ends with the run's work: when the next task is of another
run, when it has waited for IDLE_S, and with this process. Whatever it keeps, a task of another run never meets.
"""

from __future__ import annotations

import gc
import hashlib
import os
import select
import sys
import tempfile
import traceback
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from . import frames
from .tasks import MOST_BYTES, LoadedRun, Tasks, UnfitError, lay_out, seed_all

IDLE_S = 600.0
_LATE = {"torch": "torch._dynamo"}
"""What libraries import when they are first used, a second of every run's first task otherwise."""


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
    kept: LoadedRun | None = None
    imported: set[str] = set()
    while True:
        if kept is not None and not select.select([requests], [], [], IDLE_S)[0]:
            kept.end()
            kept = None
        if (frame := frames.read(requests, MOST_BYTES)) is None:
            break
        said, arrays = frame
        if kept is not None:
            kept.end_strangers()
        # A first model leaves under no mask: no code makes it that has trained.
        anew = said["operation"] == "initialize"
        if kept is not None and (anew or said["of"] != kept.of or not kept.runs()):
            kept.end()
            kept = None
        if said["operation"] == "end":
            frames.write(answers, {"kind": "over", "number": said["number"], "status": 0})
            continue
        if kept is None:
            _import(said["imports"], imported)
            if len(list(Path("/proc/self/task").iterdir())) > 1:
                # A process with threads is not forked. This one does the task, and another takes its place.
                with tempfile.TemporaryDirectory(prefix="hanse-code-", ignore_cleanup_errors=True) as folder:
                    place = Path(folder).resolve()
                    lay_out(said["files"], place)
                    _do(side, said["job"], Tasks(place, answers, first=frame))
                return
            work = partial(_do, side, said["job"])
            kept = LoadedRun(said["of"], said["files"], work, answers, requests)
        status = kept.do(said, arrays)
        kept.end_strangers()
        if status is not None:
            kept.end()
            kept = None
        # Last: the process of the task has ended, or is stopped.
        frames.write(answers, {"kind": "over", "number": said["number"], "status": status})
    if kept is not None:
        kept.end()


def _import(names: list[str], known: set[str]) -> None:
    """Import what the code of a run will, so far as it is not known yet. What is loaded stays out of the collector's
    way, which would copy it page by page into every run's process."""
    wanted = {*names, *(late for early, late in _LATE.items() if early in names)} - known
    for name in sorted(wanted):
        # An import may raise anything; where the code does it itself, it says what.
        with suppress(BaseException):
            import_module(name)
    if wanted:
        known |= wanted
        gc.collect()
        gc.freeze()


def _do(side: Any, job: str, tasks: Tasks) -> None:
    """Do a run's tasks, until there are no more, or one fails. What the code draws before its first task is the same in
    all runs."""
    seed_all(int.from_bytes(hashlib.sha256(job.encode()).digest()[:8], "big"))
    sys.path.insert(0, str(tasks.place))
    os.chdir(tasks.place)
    try:
        side.serve(tasks)
    except UnfitError as error:
        _fail(tasks, {"kind": "unfit", "message": str(error), "found": error.found})
    # The code may raise anything, and end with SystemExit.
    except BaseException as error:
        traceback.print_exception(error)
        told = {"kind": "raised", "type": type(error).__name__, "message": str(error)[:2000]}
        _fail(tasks, told | _where(error, tasks.place))


def _fail(tasks: Tasks, told: dict[str, Any]) -> None:
    if not tasks.answered:
        tasks.answer(told)


def _where(error: BaseException, place: Path) -> dict[str, Any]:
    """The last line of the code's own files that an exception went through."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if place in path.parents:
            return {"file": str(path.relative_to(place)), "line": frame.lineno}
    return {}


def _own_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Take stdin and stdout away from everybody else: what the code prints goes to the datapod's log."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdin, sys.stdout = open(os.devnull), sys.stderr  # noqa: SIM115, PTH123 - for the process's lifetime
    return requests, answers
