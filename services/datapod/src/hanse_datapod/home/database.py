"""A small database of a home: one file, readable by its owner alone, on the disk when a change has returned."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from hanse_fabric.durable import no_space, space_errors
from hanse_fabric.errors import ErrorCode, unfit

T = TypeVar("T")
_WAIT_S = 10.0
_BESIDE_BYTES = 32 << 10
"""SQLite begins its log's index with so much."""
FAILED = "the site's disk or system failed: the site's own log has what it said"
"""All that leaves of such a failure: its own words name files, and a hub may have it read of the data."""


class Database:
    """Methods block, and any thread may call them: they take turns at one connection, which stays open.

    Args:
        tables: statements that make what is not there yet.
    """

    def __init__(self, path: Path, tables: str) -> None:
        self._path, self._tables = path, tables
        self._turn = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def do(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """Act as the only one who does, and keep all of it or nothing.

        Raises:
            HanseError: NO_SPACE; INTERNAL where the disk fails or the file is none of these, without their words; what
                `act` raises.
        """
        try:
            with self._turn, space_errors(self._path):
                database = self._connection or self._open()
                database.execute("BEGIN IMMEDIATE")
                with database:
                    return act(database)
        except sqlite3.Error as error:
            if "full" in str(error) or is_full(self._path):
                raise no_space(self._path) from None
            raise unfit(FAILED, f"{self._path}: {error}", code=ErrorCode.INTERNAL) from None

    def close(self) -> None:
        """Close the connection; the next change opens another."""
        with self._turn:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _open(self) -> sqlite3.Connection:
        os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600))
        database = sqlite3.connect(self._path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)
        try:
            # Changes are appended to a file beside it: one wait for the disk each, where a journal that is made and
            # removed takes four. Where a file system cannot have that, SQLite stays with its journal: a change is made
            # by removing it, and EXTRA waits for the folder, too, lest a power cut bring it back and so take the change
            # back.
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = EXTRA")
            database.executescript(f"BEGIN IMMEDIATE;{self._tables};COMMIT;")  # waits for the disk once for all of them
        except BaseException:
            database.close()  # or what it has begun would lock all others out
            raise
        self._connection = database
        return database


def is_full(path: Path) -> bool:
    """Whether there is no room for what SQLite lays beside a file; of that it says no more than that it failed."""
    found = os.statvfs(path.parent)
    return found.f_bavail * found.f_frsize < _BESIDE_BYTES


def one(database: sqlite3.Connection, query: str, *values: object) -> Any:
    """The first row, or None."""
    return database.execute(query, values).fetchone()


def used_bytes(database: sqlite3.Connection) -> int:
    """Of the file, without what is free in it."""
    pages, free, size = (
        int(one(database, f"PRAGMA {name}")[0]) for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size
