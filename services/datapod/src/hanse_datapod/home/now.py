"""What the datapod is doing now and what it has found of its data, for people: a file of the home, which no decision is
made by and which a crash may lose.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.durable import try_lock
from hanse_fabric.messages import Task

FILE = "now.json"


class Now:
    """Writes the file. Its methods block for a moment, and any thread may call them.

    A full disk loses what it would have told, and nothing else.
    """

    def __init__(self, home: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        self._path, self._clock = home / FILE, clock
        self._turn = threading.Lock()
        self._tasks: dict[str, dict[str, Any]] = {}
        self._data: dict[str, Any] | None = None
        self._write()

    def begin(self, task: Task) -> None:
        """Work on a task begins."""
        told = {
            "task": task.id, "run": task.run, "step": task.step, "kind": task.kind.value, "workflow": task.workflow,
            "round": task.round, "since": self._clock.now().isoformat(), "masked": task.masking is not None,
            "private": task.privacy is not None, "fraction": None, "text": "",
        }  # fmt: skip
        with self._turn:
            self._tasks[task.id] = told
            self._write()

    def progress(self, task: Task, fraction: float, text: str) -> None:
        """How far it is, from 0 to 1."""
        with self._turn:
            if (told := self._tasks.get(task.id)) is not None:
                told |= {"fraction": fraction, "text": text[:200]}
                self._write()

    def end(self, task: Task) -> None:
        """Nothing more is done for it."""
        with self._turn:
            if self._tasks.pop(task.id, None) is not None:
                self._write()

    def found(self, **data: Any) -> None:
        """What a look at the data has found."""
        with self._turn:
            self._data = {"at": self._clock.now().isoformat(), **data}
            self._write()

    def _write(self) -> None:
        new = self._path.with_name(f".{FILE}.new")
        body = json.dumps({"data": self._data, "tasks": list(self._tasks.values())})
        try:
            new.write_text(body)
            new.chmod(0o600)
            new.replace(self._path)
        except OSError:
            new.unlink(missing_ok=True)


def read_now(home: Path) -> dict[str, Any]:
    """What the file tells; nothing where there is none, or none that is whole."""
    try:
        told = json.loads((home / FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def runs(home: Path) -> bool:
    """Whether a datapod, or a command in its place, works with this home at this moment."""
    try:
        descriptor = os.open(home / "lock", os.O_RDONLY)
    except OSError:
        return False
    try:
        return not try_lock(descriptor, shared=True)
    finally:
        os.close(descriptor)
