"""A log whose lines cannot be changed, dropped or reordered unseen: each has the hash of the line before it.

A JSON object a line. `<name>.head` names the newest line, so that lines cut off the end are seen too. A line that was
torn by a crash had not been acknowledged to anybody, and is removed. What `append` has returned from is on the disk.
"""

from __future__ import annotations

import hashlib
import json
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hanse_fabric import durable
from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.errors import ErrorCode, HanseError

ORIGIN = "0" * 64
_TAIL = 64 << 10

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LogCheck:
    """What verification found. `broken` is the number of the first bad line, from 1; None if all is well."""

    entries: int
    broken: int | None = None
    reason: str = ""


class ChainedLog:
    """The log `<folder>/<name>.jsonl`, held open. Its methods block; the caller sees to it that one thread at a time,
    and one process at a time, calls them.

    Attributes:
        torn: bytes of a torn last line that opening removed.
    """

    def __init__(self, folder: Path, name: str, clock: Clock = SYSTEM_CLOCK) -> None:
        """Open or begin the log, removing a torn last line.

        Raises:
            HanseError: TAMPERED when the newest whole line is not the one the log ended with.
        """
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._name, self._clock = name, clock
        self._path = folder / f"{name}.jsonl"
        head = folder / f"{name}.head"
        self._log = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        self._size = os.fstat(self._log).st_size
        if not head.exists():
            if self._size:
                raise _tampered(name, f"{name}.head is missing")
            durable.write_durably(head, _head(0, ORIGIN))
        self._head = os.open(head, os.O_RDWR)
        self._sequence, self._hash, self.torn = self._resume()
        if self.torn:
            os.ftruncate(self._log, self._size)

    @property
    def size(self) -> int:
        """Bytes of the log."""
        return self._size

    @property
    def newest(self) -> str:
        """The hash of the newest entry."""
        return self._hash

    @property
    def entries(self) -> int:
        """How many there are."""
        return self._sequence

    def append(self, *bodies: Mapping[str, Any]) -> None:
        """Write entries down; `sequence`, `time`, `previous` and `hash` are added to each.

        Raises:
            HanseError: NO_SPACE; the log is then as it was.
        """
        sequence, previous, lines = self._sequence, self._hash, []
        now = self._clock.now().isoformat(timespec="microseconds")
        for body in bodies:
            sequence += 1
            line, previous = _line({**body, "sequence": sequence, "time": now, "previous": previous})
            lines.append(line)
        data = b"".join(lines)
        try:
            with durable.space_errors(self._path):
                os.lseek(self._log, self._size, os.SEEK_SET)
                durable.write_all(self._log, data)
                durable.sync(self._log)
        except HanseError:
            os.ftruncate(self._log, self._size)
            raise
        self._size += len(data)
        self._sequence, self._hash = sequence, previous
        # Not synced: after a power cut the head may be older than the log, never newer.
        os.pwrite(self._head, _head(sequence, previous), 0)

    def catch_up(self) -> list[Entry]:
        """Entries that another process has appended since, for a log that several share under a lock.

        Raises:
            HanseError: TAMPERED where they do not follow from the last line that was known.
        """
        size = os.fstat(self._log).st_size
        if size == self._size:
            return []
        if size < self._size:
            raise _tampered(self._name, "it is shorter than it was")
        data = os.pread(self._log, size - self._size, self._size)
        whole = data[: data.rfind(b"\n") + 1]
        entries = []
        for line in whole.splitlines(keepends=True):
            entry = _parse(line)
            if entry is None or entry["previous"] != self._hash or entry["sequence"] != self._sequence + 1:
                raise _tampered(self._name, f"entry {self._sequence + 1} does not follow the line before it")
            self._sequence, self._hash = entry["sequence"], entry["hash"]
            entries.append(entry)
        self._size += len(whole)
        if len(whole) < len(data):  # the other process was killed while it wrote
            os.ftruncate(self._log, self._size)
        return entries

    def close(self) -> None:
        os.close(self._log)
        os.close(self._head)

    def _resume(self) -> tuple[int, str, int]:
        """(sequence, hash) of the newest whole line, and the bytes of a torn one after it."""
        start, tail = self._size, b""
        while start and tail.count(b"\n") < 2:  # until all of the last whole line is there
            start = max(0, start - _TAIL)
            tail = os.pread(self._log, self._size - start, start)
        whole = tail[: tail.rfind(b"\n") + 1]
        torn = len(tail) - len(whole)
        self._size -= torn
        sequence, previous = _parse_head(os.pread(self._head, 200, 0), self._name)
        if not whole:
            if sequence:
                raise _tampered(self._name, f"the log is empty, its head says that it has {sequence} entries")
            return 0, ORIGIN, torn
        last = whole[whole.rfind(b"\n", 0, -1) + 1 :]
        entry = _parse(last)
        if entry is None or entry["sequence"] < sequence:
            raise _tampered(self._name, "its last line is not the one that it ended with")
        if entry["sequence"] == sequence and entry["hash"] != previous:
            raise _tampered(self._name, "its last line is not the one that it ended with")
        return entry["sequence"], entry["hash"], torn


class ChainReader:
    """Reads a log that another process appends to, and knows where each entry lies. Its methods block; one thread at a
    time calls them.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._path = folder / f"{name}.jsonl"
        self._begin(0)

    def _begin(self, inode: int) -> None:
        self._inode, self._end, self._newest = inode, 0, ORIGIN
        self._places = array("Q")

    def __len__(self) -> int:
        """How many entries were read, which are all as they were written."""
        return len(self._places)

    def catch_up(self) -> LogCheck:
        """Check what was appended since the last time; all of it, where the file is another, or shorter than it was.

        Raises:
            HanseError: NOT_FOUND when there is none.
        """
        head = self._folder / f"{self._name}.head"
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            self._begin(0)
            if head.exists():
                return LogCheck(0, 1, f"{self._name}.jsonl is missing, of which {self._name}.head keeps the end")
            raise HanseError(
                ErrorCode.NOT_FOUND, f"{self._folder}: no {self._name} log", hint="is this a datapod's --home?"
            ) from None
        with file:
            found = os.fstat(file.fileno())
            if found.st_ino != self._inode or found.st_size < self._end:
                self._begin(found.st_ino)
            # Before the lines: who appends writes the head last.
            try:
                named, named_hash = _parse_head(head.read_bytes(), self._name)
            except FileNotFoundError:
                missing = f"{self._name}.head is missing: whether lines were cut off the end cannot be told"
                return LogCheck(0, 1, missing)
            except HanseError as error:
                return LogCheck(0, 1, error.message)
            file.seek(self._end)
            return self._read(file, named, named_hash)

    def _read(self, lines: Iterable[bytes], named: int, named_hash: str) -> LogCheck:
        for line in lines:
            before, number = len(self), len(self) + 1
            entry = _parse(line)
            if entry is None:
                if not line.endswith(b"\n") and number > named:
                    return LogCheck(before, None, "a last line was torn by a crash; the next start repairs it")
                return LogCheck(before, number, "the line is not as it was written")
            if entry["sequence"] != number:
                return LogCheck(before, number, f"it is entry {entry['sequence']}: lines are missing or misplaced")
            if entry["previous"] != self._newest:
                return LogCheck(before, number, "it does not follow the line before it")
            if number == named and entry["hash"] != named_hash:
                return LogCheck(before, number, f"it is not the line that {self._name}.head names")
            self._places.append(self._end)
            self._end += len(line)
            self._newest = entry["hash"]
        if len(self) < named:
            return LogCheck(len(self), len(self) + 1, f"{named - len(self)} lines are missing at the end")
        return LogCheck(len(self))

    def newest_first(self, before: int | None = None) -> Iterator[bytes]:
        """The lines of entries that were read, each as it lies in the file: the newest first.

        Args:
            before: from the entry before this number on; None: from the newest.
        """
        last = len(self) if before is None else min(before - 1, len(self))
        with self._path.open("rb") as file:
            for number in range(last, 0, -1):
                file.seek(self._places[number - 1])
                yield file.readline()


def verify_chain(folder: Path, name: str) -> LogCheck:
    """Check the whole log `name` of `folder`, without changing it.

    Raises:
        HanseError: NOT_FOUND when there is none.
    """
    return ChainReader(folder, name).catch_up()


def read_chain(folder: Path, name: str) -> Iterator[Entry]:
    """The whole entries of a log, checked link by link; a torn last line is left out.

    Raises:
        HanseError: TAMPERED at the first entry that is not as it was written.
    """
    previous = ORIGIN
    with (folder / f"{name}.jsonl").open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            entry = _parse(line)
            if entry is None or entry["previous"] != previous or entry["sequence"] != number:
                raise _tampered(name, f"entry {number} is not as it was written")
            previous = entry["hash"]
            yield entry


def entry_of(line: bytes) -> Entry:
    """The entry of a line of a log.

    Raises:
        HanseError: TAMPERED where it is not as it was written.
    """
    entry = _parse(line)
    if entry is None:
        raise HanseError(ErrorCode.TAMPERED, "a line of the log is not as it was written", hint="see: verify-log")
    return entry


def entries_with(folder: Path, name: str, *parts: bytes) -> Iterator[Entry]:
    """The entries of a log whose lines have one of these parts, each as it was written, without checking the others:
    fast in a long log.
    """
    with (folder / f"{name}.jsonl").open("rb") as file:
        for line in file:
            if any(part in line for part in parts) and (entry := _parse(line)) is not None:
                yield entry


def _canonical(entry: Entry) -> bytes:
    return json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def _line(entry: Entry) -> tuple[bytes, str]:
    entry["hash"] = hashlib.sha256(_canonical(entry)).hexdigest()
    return _canonical(entry) + b"\n", entry["hash"]


def _parse(line: bytes) -> Entry | None:
    """The entry of a line that is byte for byte what was written, else None."""
    try:
        entry: Entry = json.loads(line)
        rest = {name: value for name, value in entry.items() if name != "hash"}
        intact = hashlib.sha256(_canonical(rest)).hexdigest() == entry["hash"] and _canonical(entry) + b"\n" == line
        return entry if intact and isinstance(entry["sequence"], int) and "previous" in entry else None
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return None


def _head(sequence: int, digest: str) -> bytes:
    return f"{sequence:020d} {digest}\n".encode()


def _parse_head(data: bytes, name: str) -> tuple[int, str]:
    parts = data.decode("ascii", "replace").split()
    if len(parts) != 2 or not parts[0].isdigit() or len(parts[1]) != 64:
        raise _tampered(name, f"{name}.head is not as it was written")
    return int(parts[0]), parts[1]


def _tampered(name: str, reason: str) -> HanseError:
    return HanseError(
        ErrorCode.TAMPERED,
        f"{name} log: {reason}",
        hint=f"verify it, keep the {name} files as evidence elsewhere, then start again",
    )
