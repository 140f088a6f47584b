"""What the datapod is doing now and what it has found of its data, for people: a file of the home, which no decision is
made by and which a crash may lose.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.durable import try_lock
from hanse_fabric.messages import Task

FILE = "now.json"


_SOON_S = 0.25
"""Seconds until a change is in the file: tasks of a few milliseconds, which nobody could read, are not written one by
one."""


class Now:
    """Tells what is done now. Its methods return at once, in the event loop's thread; `keep` writes the file.

    A full disk loses what it would have told, and nothing else.
    """

    def __init__(self, home: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        self._path, self._clock = home / FILE, clock
        self._changed = asyncio.Event()
        self._tasks: dict[str, dict[str, Any]] = {}
        self._data: dict[str, Any] | None = None
        self._written = self._body()
        self._write(self._written)

    async def keep(self) -> None:
        """Write what changes, until cancelled."""
        while True:
            await self._changed.wait()
            await self._clock.sleep(_SOON_S)
            self._changed.clear()
            body = self._body()
            if body != self._written:  # else what was begun meanwhile is over
                self._written = body
                await asyncio.to_thread(self._write, body)

    def begin(self, task: Task) -> None:
        """Work on a task begins."""
        self._tasks[task.id] = {
            "task": task.id, "run": task.run, "step": task.step, "kind": task.kind.value, "workflow": task.workflow,
            "round": task.round, "since": self._clock.now().isoformat(), "masked": task.masking is not None,
            "private": task.privacy is not None, "fraction": None, "text": "",
        }  # fmt: skip
        self._changed.set()

    def progress(self, task: Task, fraction: float, text: str) -> None:
        """How far it is, from 0 to 1."""
        if (told := self._tasks.get(task.id)) is not None:
            told |= {"fraction": fraction, "text": text[:200]}
            self._changed.set()

    def end(self, task: Task) -> None:
        """Nothing more is done for it."""
        if self._tasks.pop(task.id, None) is not None:
            self._changed.set()

    def found(self, **data: Any) -> None:
        """What a look at the data has found."""
        self._data = {"at": self._clock.now().isoformat(), **data}
        self._changed.set()

    def _body(self) -> str:
        return json.dumps({"data": self._data, "tasks": list(self._tasks.values())})

    def _write(self, body: str) -> None:
        new = self._path.with_name(f".{FILE}.new")
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
