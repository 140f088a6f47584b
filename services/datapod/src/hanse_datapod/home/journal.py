"""The datapod's memory of its tasks: what it began, and what it finished, with the very bytes of the answer.

A finished task is on the disk before anything of it leaves, so that a task which comes again is answered again with the
same bytes and never done again. (For the disk nobody waits with a large update that is neither masked nor charged to a
budget: a power cut may take it, and then it is made again. A process that is killed loses nothing.) Notes of tasks that
were only begun are not synced: people read them, and losing one is harmless. The file is compacted when it grows;
answers are kept while their task can still be open.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hanse_fabric import durable
from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.messages import LedgerHead, Result, Task

FILE = "journal.jsonl"
COMPACT_ABOVE = 16 << 20
KEPT = 64


@dataclass(frozen=True, slots=True)
class FinishedTask:
    """A task's signed answer. `update` holds a small update's bytes; a large one is the file `work/<task>.update`.
    `tally` holds the tally's bytes of a masked answer, `extras` those of small extras by name."""

    result: Result
    update: bytes | None = None
    tally: bytes | None = None
    extras: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def large(self) -> bool:
        """Whether the update is a file."""
        return self.result.update is not None and self.update is None


@dataclass(frozen=True, slots=True)
class _LinePlace:
    offset: int
    length: int
    expires: float  # Unix time


class TaskJournal:
    """The journal of one home folder, held open by its one datapod. Its methods block, and any thread may call them."""

    def __init__(self, home: Path, *, compact_above: int = COMPACT_ABOVE, clock: Clock = SYSTEM_CLOCK) -> None:
        self._path = home / FILE
        self._compact_above, self._clock = compact_above, clock
        self._lock = threading.Lock()
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._open()

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        self._size = 0
        self._places: dict[str, _LinePlace] = {}
        self._sessions: dict[tuple[str, str], tuple[str, str]] = {}
        self._charged: tuple[str, LedgerHead] | None = None
        self.begun = 0
        with self._path.open("rb") as file:
            for line in file:
                body = _parse(line)
                if body is None:
                    break  # torn by a crash: what follows was never acknowledged
                self._index(body, len(line))
        os.ftruncate(self._file, self._size)

    def _index(self, body: dict[str, Any], length: int) -> None:
        if body["kind"] == "finished":
            self._places.pop(body["task"], None)
            self._places[body["task"]] = _LinePlace(self._size, length, float(body["expires"]))
            if "session" in body:
                self._sessions[body["run"], body["session"]] = (body["task"], body["work"])
            if "ledger" in body:
                self._charged = body["task"], LedgerHead.model_validate(body["ledger"])
        else:
            self.begun += 1
        self._size += length

    def begin(self, task: Task) -> None:
        """Note that work on `task` begins."""
        body = {
            "kind": "begun",
            "task": task.id,
            "run": task.run,
            "step": task.step,
            "at": self._clock.now().timestamp(),
        }
        with self._lock:
            self._append(body, synced=False)

    def finish(self, task: Task, finished: FinishedTask) -> None:
        """Remember the answer; it is on the disk when this returns.

        Raises:
            HanseError: NO_SPACE; the journal is then as it was.
        """
        body = {
            "kind": "finished",
            "task": task.id,
            "run": task.run,
            "expires": task.deadline.timestamp(),
            "result": base64.b64encode(finished.result.encode()).decode(),
            "update": _text(finished.update),
        }
        if finished.result.ledger is not None:
            body["ledger"] = finished.result.ledger.model_dump(mode="json")
        if finished.extras:
            body["extras"] = {name: _text(data) for name, data in finished.extras.items()}
        if finished.tally is not None and task.masking is not None:
            body |= {"tally": _text(finished.tally), "session": task.masking.session, "work": work_of(task)}
        with self._lock:
            self._append(body, synced=True)
            if self._size > self._compact_above:
                self._compact()

    def find(self, task: str) -> FinishedTask | None:
        """The answer to a finished task, by its id."""
        with self._lock:
            place = self._places.get(task)
            if place is None:
                return None
            body = _parse(os.pread(self._file, place.length, place.offset))
        if body is None:
            return None  # the disk lost it; the work is done again
        result = Result.decode(base64.b64decode(body["result"]))
        extras = {name: base64.b64decode(text) for name, text in body.get("extras", {}).items()}
        return FinishedTask(result, _bytes(body["update"]), _bytes(body.get("tally")), extras)

    def forget(self, task: str) -> None:
        """Forget the answer to a task, which will be answered anew."""
        with self._lock:
            self._places.pop(task, None)

    def answered(self, run: str, session: str) -> tuple[str, str] | None:
        """The task that was answered within a masked session, and its `work_of`; None where none is remembered."""
        with self._lock:
            return self._sessions.get((run, session))

    @property
    def charged(self) -> LedgerHead | None:
        """How far the privacy ledger had come at the newest answer that was charged."""
        with self._lock:
            return None if self._charged is None else self._charged[1]

    @property
    def finished(self) -> tuple[str, ...]:
        """Ids of the finished tasks that are remembered, oldest first."""
        return tuple(self._places)

    @staticmethod
    def counts(home: Path) -> tuple[int, int]:
        """(tasks begun, tasks finished) that the journal of `home` holds, without opening it for writing."""
        found = list(notes(home))
        finished = {body["task"] for body in found if body["kind"] == "finished"}
        return sum(body["kind"] != "finished" for body in found), len(finished)

    def close(self) -> None:
        os.close(self._file)

    def _append(self, body: dict[str, Any], *, synced: bool) -> None:
        line = _line(body)
        complete = False
        try:
            with durable.space_errors(self._path):
                os.lseek(self._file, self._size, os.SEEK_SET)
                durable.write_all(self._file, line)
                if synced:
                    durable.sync(self._file)
            complete = True
        finally:
            if not complete:
                os.ftruncate(self._file, self._size)
        self._index(body, len(line))

    def _compact(self) -> None:
        now = self._clock.now().timestamp()
        newest = {*list(self._places)[-KEPT:], *(() if self._charged is None else self._charged[:1])}
        kept = [p for task, p in self._places.items() if task in newest or p.expires > now]
        lines = [os.pread(self._file, place.length, place.offset) for place in kept]
        durable.write_durably(self._path, b"".join(lines))
        os.close(self._file)
        self._open()
        # All that is kept may still be large: then let it grow to twice that before trying again.
        self._compact_above = max(self._compact_above, 2 * self._size)


def work_of(task: Task) -> str:
    """SHA-256 over what a task asks, without its id, attempt and deadline, and the place where the model is stored."""
    varying = frozenset({"id", "step", "issued_at", "deadline", "peers", "model", "ledger", "deltas"})
    model = task.model.digest if task.model is not None else ""
    return hashlib.sha256(task.canonical(without=varying) + model.encode()).hexdigest()


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _line(body: dict[str, Any]) -> bytes:
    text = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(text).hexdigest()[:16].encode() + b" " + text + b"\n"


def notes(home: Path) -> Iterator[dict[str, Any]]:
    """What the journal of `home` holds, oldest first, without opening it for writing: notes of the kinds `begun` and
    `finished`. What a crash has torn is left out."""
    with (home / FILE).open("rb") as file:
        yield from (body for body in map(_parse, file) if body is not None)


def _parse(line: bytes) -> dict[str, Any] | None:
    check, _, text = line.rstrip(b"\n").partition(b" ")
    if not line.endswith(b"\n") or hashlib.sha256(text).hexdigest()[:16].encode() != check:
        return None
    body = json.loads(text)
    return body if isinstance(body, dict) else None
