"""The outbox log: everything that leaves the site, written down and on the disk before it leaves.

A JSON line for each thing, each with the hash of the line before it, so that no line can be changed, dropped or
reordered unseen. `outbox.head` names the newest line, so that lines cut off the end are seen too. A line that was torn
by a crash had not been acknowledged to anybody: nothing left on its account, and it is removed and noted.

A reserve file keeps some space back, so that on a full disk the refusal can still be written down and sent.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.site import durable

LOG = "outbox.jsonl"
HEAD = "outbox.head"
RESERVE = "outbox.reserve"
RESERVE_BYTES = 64 << 10
ORIGIN = "0" * 64
_TAIL = 64 << 10


@dataclass(frozen=True, slots=True)
class Leaving:
    """Something about to leave.

    Attributes:
        what: update, result, progress, presence, link-request, or join; `repaired` for a note of the log's own.
        to: bus subject, object key or URL.
        digest: SHA-256 (for large objects over leaves, as in `tensors.digest`) of what leaves; empty for requests.
    """

    what: str
    to: str
    size: int
    digest: str = ""


@dataclass(frozen=True, slots=True)
class LogCheck:
    """What verification found. `broken` is the number of the first bad line, from 1; None if all is well."""

    entries: int
    broken: int | None = None
    reason: str = ""


class Outbox:
    """The log of one site, held open by its one datapod. Its methods block, and any thread may call them."""

    def __init__(self, home: Path) -> None:
        """Open or begin the log, removing a torn last line.

        Raises:
            HanseError: TAMPERED when the newest whole line is not the one the log ended with.
        """
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._home = home
        self._lock = threading.Lock()
        flags = os.O_RDWR | os.O_CREAT
        self._log = os.open(home / LOG, flags, 0o600)
        self._size = os.fstat(self._log).st_size
        if not (home / HEAD).exists():
            if self._size:
                raise _tampered("outbox.head is missing")
            durable.write_durably(home / HEAD, _head(0, ORIGIN))
        self._head = os.open(home / HEAD, os.O_RDWR)
        self._keep_reserve()
        self._sequence, self._hash, torn = self._resume()
        if torn:
            os.ftruncate(self._log, self._size)
            self.append(Leaving("repaired", f"{torn} bytes of a line that was torn by a crash, removed", torn))

    def append(self, *leaving: Leaving) -> None:
        """Write entries down; they are on the disk when this returns. Blocks for as long as the disk takes.

        Raises:
            HanseError: NO_SPACE when even the reserve is used up. The log is then as it was.
        """
        with self._lock:
            self._append(*leaving)

    def _append(self, *leaving: Leaving) -> None:
        sequence, previous, lines = self._sequence, self._hash, []
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        for item in leaving:
            sequence += 1
            line, previous = _line(sequence, now, item, previous)
            lines.append(line)
        data = b"".join(lines)
        try:
            self._write(data)
        except HanseError as error:
            if error.code is not ErrorCode.NO_SPACE or not self._release_reserve():
                raise
            self._write(data)
        self._size += len(data)
        self._sequence, self._hash = sequence, previous
        # Not synced: after a power cut the head may be older than the log, never newer.
        os.pwrite(self._head, _head(sequence, previous), 0)
        self._keep_reserve()

    def close(self) -> None:
        os.close(self._log)
        os.close(self._head)

    def _write(self, data: bytes) -> None:
        try:
            with durable.space_errors(self._home / LOG):
                os.lseek(self._log, self._size, os.SEEK_SET)
                durable.write_all(self._log, data)
                durable.sync(self._log)
        except HanseError:
            os.ftruncate(self._log, self._size)
            raise

    def _release_reserve(self) -> bool:
        try:
            (self._home / RESERVE).unlink()
        except FileNotFoundError:
            return False
        return True

    def _keep_reserve(self) -> None:
        path = self._home / RESERVE
        if path.exists():
            return
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        kept = False
        try:
            os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
            kept = True
        except OSError:
            kept = False  # a full disk: the next append tries again
        finally:
            os.close(descriptor)
        if not kept:
            with suppress(FileNotFoundError):
                path.unlink()

    def _resume(self) -> tuple[int, str, int]:
        """(sequence, hash) of the newest whole line, and the bytes of a torn one after it."""
        start = max(0, self._size - _TAIL)
        tail = os.pread(self._log, self._size - start, start)
        whole = tail[: tail.rfind(b"\n") + 1]
        torn = len(tail) - len(whole)
        self._size -= torn
        sequence, previous = _parse_head(os.pread(self._head, 200, 0))
        if not whole:
            if sequence:
                raise _tampered(f"the log is empty, its head says that it has {sequence} entries")
            return 0, ORIGIN, torn
        last = whole[whole.rfind(b"\n", 0, -1) + 1 :]
        entry = _parse(last)
        if entry is None or entry["sequence"] < sequence:
            raise _tampered("its last line is not the one that it ended with")
        if entry["sequence"] == sequence and entry["hash"] != previous:
            raise _tampered("its last line is not the one that it ended with")
        return entry["sequence"], entry["hash"], torn


def verify_log(home: Path) -> LogCheck:
    """Check the whole log of `home`, without changing it.

    Raises:
        HanseError: NOT_FOUND when there is none.
    """
    try:
        file = (home / LOG).open("rb")
    except FileNotFoundError:
        raise HanseError(ErrorCode.NOT_FOUND, f"{home}: no outbox log", hint="is this a datapod's --home?") from None
    try:
        named, named_hash = _parse_head((home / HEAD).read_bytes())
    except FileNotFoundError:
        return LogCheck(0, 1, "outbox.head is missing: whether lines were cut off the end cannot be told")
    except HanseError as error:
        return LogCheck(0, 1, error.message)
    previous, number = ORIGIN, 0
    with file:
        for number, line in enumerate(file, start=1):
            entry = _parse(line)
            if entry is None:
                if not line.endswith(b"\n") and number > named:
                    return LogCheck(number - 1, None, "a last line was torn by a crash; the next start repairs it")
                return LogCheck(number - 1, number, "the line is not as it was written")
            if entry["sequence"] != number:
                return LogCheck(number - 1, number, f"it is entry {entry['sequence']}: lines are missing or misplaced")
            if entry["previous"] != previous:
                return LogCheck(number - 1, number, "it does not follow the line before it")
            previous = entry["hash"]
            if number == named and previous != named_hash:
                return LogCheck(number - 1, number, "it is not the line that outbox.head names")
    if number < named:
        return LogCheck(number, number + 1, f"{named - number} lines are missing at the end")
    return LogCheck(number)


def _canonical(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def _line(sequence: int, now: str, item: Leaving, previous: str) -> tuple[bytes, str]:
    entry: dict[str, Any] = {
        "sequence": sequence, "time": now, "what": item.what, "to": item.to, "size": item.size,
        "digest": item.digest, "previous": previous,
    }  # fmt: skip
    entry["hash"] = hashlib.sha256(_canonical(entry)).hexdigest()
    return _canonical(entry) + b"\n", entry["hash"]


def _parse(line: bytes) -> dict[str, Any] | None:
    """The entry of a line that is byte for byte what was written, else None."""
    try:
        entry = json.loads(line)
        rest = {name: value for name, value in entry.items() if name != "hash"}
        intact = hashlib.sha256(_canonical(rest)).hexdigest() == entry["hash"] and _canonical(entry) + b"\n" == line
        return entry if intact and isinstance(entry["sequence"], int) and "previous" in entry else None
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return None


def _head(sequence: int, digest: str) -> bytes:
    return f"{sequence:020d} {digest}\n".encode()


def _parse_head(data: bytes) -> tuple[int, str]:
    parts = data.decode("ascii", "replace").split()
    if len(parts) != 2 or not parts[0].isdigit() or len(parts[1]) != 64:
        raise _tampered("outbox.head is not as it was written")
    return int(parts[0]), parts[1]


def _tampered(reason: str) -> HanseError:
    return HanseError(
        ErrorCode.TAMPERED,
        f"outbox log: {reason}",
        hint="run verify-log, keep the outbox files as evidence elsewhere, then start again",
    )
