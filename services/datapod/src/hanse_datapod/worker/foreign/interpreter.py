"""A foreign interpreter as the worker's process sees it: started once, asked for each task, replaced when it ends.

It is a child of the worker's process, so it is in that one's sandbox, its memory counts as that one's, and it is
killed with it at a limit.
"""

from __future__ import annotations

import atexit
import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from hanse_datapod.worker.foreign import BEGIN
from hanse_datapod.worker.foreign.hanse_shim import frames
from hanse_fabric.errors import ErrorCode, HanseError

_MORE_BYTES, _TIMES = 256 << 20, 4
_STOP_S = 5.0


class Interpreter:
    """One process of a foreign interpreter.

    Args:
        kind: `flower` or `nvflare`.
        python: the interpreter that the site names.

    Attributes:
        loaded: what run its loaded code is of; empty: of none.
    """

    def __init__(self, kind: str, python: Path) -> None:
        self.kind, self._asked, self.loaded = kind, 0, ""
        try:
            self._process = subprocess.Popen(
                [str(python), "-s", "-B", str(BEGIN), kind],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment(),
            )  # fmt: skip
        except OSError as error:
            raise _cannot(kind, python, error.strerror or str(error)) from None
        atexit.register(self.stop)
        ready = self._read(0)
        if ready is None or ready[0].get("kind") != "ready":
            self.stop()
            raise _cannot(kind, python, f"it ended with status {self._process.returncode} before it was ready")
        self.version = str(ready[0].get("version", ""))[:64]

    @property
    def runs(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def end_run(self) -> None:
        """End the process in which a run's code is loaded, where one waits: other work comes."""
        if self.loaded and self.runs:
            self.loaded = ""
            self._exchange({"operation": "end", "of": ""}, {})

    def ask(self, said: dict[str, Any], arrays: frames.Arrays) -> frames.Frame:
        """Have a task done: the answer and its arrays.

        Raises:
            HanseError: TRAINING_FAILED where the process of the task ended, or wrote what is no answer.
        """
        self.loaded = str(said["of"])
        return self._exchange(said, arrays)

    def _exchange(self, said: dict[str, Any], arrays: frames.Arrays) -> frames.Frame:
        if self._process.stdin is None:
            raise HanseError(ErrorCode.INTERNAL, f"the interpreter of {self.kind}: no pipe to its stdin")
        self._asked += 1
        given = sum(array.nbytes for array in arrays.values())
        try:
            frames.write(self._process.stdin, {**said, "number": self._asked}, arrays)
            answer = self._read(_TIMES * given + _MORE_BYTES)
            over = answer if answer is None or answer[0].get("kind") == "over" else self._read(0)
        except OSError as error:  # it has ended
            self.stop()
            raise _ended(self.kind, error.strerror or str(error)) from None
        except BaseException:
            self.stop()
            raise
        if over is None:  # of a task that was done in the interpreter's own process, the end is the end of both
            self.stop()
        if answer is None:
            raise _ended(self.kind, f"status {self._process.returncode}")
        if answer[0].get("number") != self._asked or (over is not None and over[0].get("kind") != "over"):
            self.stop()
            raise _ended(self.kind, "it has written an answer to no question")
        return answer

    def stop(self) -> None:
        """End it."""
        atexit.unregister(self.stop)
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_S)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def _read(self, most: int) -> frames.Frame | None:
        if self._process.stdout is None:
            return None
        try:
            return frames.read(self._process.stdout, most)
        except ValueError as error:
            self.stop()
            raise _ended(self.kind, f"what it has written is no frame: {error}") from None


_running: dict[tuple[str, Path], Interpreter] = {}


def running(kind: str, python: Path) -> Interpreter:
    """The interpreter of a kind, which is started where none runs. Others keep no run's code beside it.

    Raises:
        HanseError: POLICY where the site's configuration names no interpreter that has the framework.
    """
    end_runs(but=(kind, python))
    found = _running.get((kind, python))
    if found is None or not found.runs:
        found = _running[kind, python] = Interpreter(kind, python)
    return found


def end_runs(*, but: tuple[str, Path] | None = None) -> None:
    """End what interpreters keep of a run between its tasks: their memory, and what the code has made there."""
    for key, interpreter in _running.items():
        if key != but:
            with suppress(HanseError):  # then it has ended altogether
                interpreter.end_run()


def stop_all() -> None:
    """End all that `running` has started in this process."""
    while _running:
        _running.popitem()[1].stop()


def _environment() -> dict[str, str]:
    """Of the foreign interpreter: the worker's, without what is meant for the worker's own Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HANSE_", "VIRTUAL_"))}
    return kept | {"PYTHONHASHSEED": "0", "PYTHONSAFEPATH": "1", "FLWR_TELEMETRY_ENABLED": "0"}


def _cannot(kind: str, python: Path, why: str) -> HanseError:
    return HanseError(
        ErrorCode.POLICY, f"policy.site_code.{kind}.interpreter: {python} does not run {kind} code: {why}",
        hint="the datapod's log has what it said; install flwr, or nvflare, with its pip",
    )  # fmt: skip


def _ended(kind: str, why: str) -> HanseError:
    return HanseError(
        ErrorCode.TRAINING_FAILED, f"the interpreter that ran {kind} code ended: {why}",
        hint="a status of -9 mostly means that the machine ran out of memory; see the datapod's log",
    )  # fmt: skip
