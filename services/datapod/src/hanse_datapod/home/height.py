"""How far a memory of masked answers has come, as a home knows: an older copy of it, or one that is gone, is noticed.

The memory counts its changes. A home keeps the count that it knows beside it, in a small file, before an answer leaves;
nobody waits for the disk for that, since a count that a power cut takes back is only a lower one.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

from hanse_datapod.home.database import Database, one
from hanse_fabric.durable import space_errors
from hanse_fabric.errors import ErrorCode, HanseError

FILE = "works.height"
HEIGHT = """
CREATE TABLE IF NOT EXISTS height (one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER NOT NULL);
INSERT OR IGNORE INTO height VALUES (1, 0);
"""
"""The count. Who has this table has triggers that count (`counting`)."""
NUMBER = "SELECT number FROM height"
_DIGITS = 20


def counting(table: str) -> str:
    """Statements by which each row that is added to a table, or changed in it, counts."""
    return "".join(
        f"CREATE TRIGGER IF NOT EXISTS {table}_{verb.lower()}_counts AFTER {verb} ON {table} "  # noqa: S608
        "BEGIN UPDATE height SET number = number + 1; END;\n"
        for verb in ("INSERT", "UPDATE")
    )


class Height:
    """What one home knows. Methods block, and any thread may call them."""

    def __init__(self, home: Path) -> None:
        self._file, self._turn, self._known = home / FILE, threading.Lock(), -1

    def reached(self, number: int) -> None:
        """Keep that the memory has come so far.

        Raises:
            HanseError: NO_SPACE.
        """
        with self._turn:
            if number <= self._known:
                return
            with space_errors(self._file):
                file = os.open(self._file, os.O_WRONLY | os.O_CREAT, 0o600)
                try:
                    os.pwrite(file, b"%0*d" % (_DIGITS, number), 0)
                finally:
                    os.close(file)
            self._known = number


def require_height(home: Path, memory: Database, folder: Path) -> None:
    """Check that a memory has come as far as the home knows.

    Raises:
        HanseError: TAMPERED where it has not: it is an older copy, or was removed.
    """
    found, known = memory.do(lambda open_: int(one(open_, NUMBER)[0])), _known(home)
    if found < known:
        raise HanseError(
            ErrorCode.TAMPERED,
            f"{folder}: this memory of masked answers is older than what {home} has answered: a work could be summed "
            "again with one site fewer",
            hint="restore its newest copy; where that is lost: hanse site moved --memory --home DIR --reason TEXT",
        )


def forget_height(home: Path) -> None:
    """Whichever memory comes next, nothing is known of it."""
    (home / FILE).unlink(missing_ok=True)


def _known(home: Path) -> int:
    with suppress(FileNotFoundError, ValueError):  # a power cut may leave a file without digits
        return int((home / FILE).read_bytes())
    return 0
