"""The compensator's own memory of answered sessions, in a file, beside the one that replicas share on the bus.

The bus belongs to the hub: whoever runs it could remove a record there, or bring back an older state of it, and ask for
a second set of a session. Nobody outside this machine can undo what this file remembers.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from contextlib import closing
from pathlib import Path

from hanse_compensator.works import LIMIT, ON_THE_DISK, WorkFile
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.masking import MaskRequest

_WAIT_S = 10.0
_TABLE = "CREATE TABLE IF NOT EXISTS sessions (session BLOB PRIMARY KEY, members BLOB NOT NULL) WITHOUT ROWID"


class OwnMemory:
    """A database of sessions and sets, both as SHA-256, and of works. Replicas of one machine may share it.

    Methods block.

    Args:
        path: the file; made when absent, readable by its owner alone.
        limit: its bytes, beyond which the oldest works' sets are forgotten.

    Attributes:
        works: over which sets each work was summed.

    Raises:
        HanseError: INVALID_INPUT when it cannot be opened.
    """

    def __init__(self, path: Path, limit: int = LIMIT) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
            with closing(self._open()) as database, database:
                database.execute(_TABLE)
            self.works = WorkFile(path, limit)
        except (OSError, sqlite3.Error) as error:
            raise HanseError(
                ErrorCode.INVALID_INPUT,
                f"HANSE_COMPENSATOR_MEMORY: {path}: {error}",
                hint="name a file on a local disk",
            ) from None

    def claim(self, request: MaskRequest, members: str) -> bool:
        """Remember a session's set, durably; False where another one is remembered.

        Args:
            members: the set's digest, hexadecimal.

        Raises:
            HanseError: UNAVAILABLE when the file cannot be written: nothing may be summed then.
        """
        session = hashlib.sha256("\x1f".join((request.project, request.run, request.session)).encode()).digest()
        try:
            with closing(self._open()) as database, database:
                database.execute("INSERT OR IGNORE INTO sessions VALUES (?, ?)", (session, bytes.fromhex(members)))
                row = database.execute("SELECT members FROM sessions WHERE session = ?", (session,)).fetchone()
        except sqlite3.Error as error:
            raise HanseError(ErrorCode.UNAVAILABLE, f"memory {self._path}: {error}") from None
        return bool(row[0] == bytes.fromhex(members))

    def _open(self) -> sqlite3.Connection:
        # A connection for each call: calls come from different threads, a few a second at most.
        database = sqlite3.connect(self._path, timeout=_WAIT_S)
        database.execute(ON_THE_DISK)
        return database
