"""Where a home lies. One that was copied or restored may have made masks before that it does not remember.

So a home that finds itself elsewhere, by inode, file system or machine, erases the secrets of sums under way, and its
datapod does not start until the administrator says why it was moved. What a snapshot brings back in place goes unseen.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

from hanse_datapod.home.database import Database, one
from hanse_datapod.home.folders import PAIRWISE
from hanse_datapod.home.works import FILE
from hanse_fabric.errors import ErrorCode, HanseError

_TABLE = "CREATE TABLE IF NOT EXISTS place (number INTEGER PRIMARY KEY CHECK (number = 1), value TEXT NOT NULL)"
_MACHINE = Path("/etc/machine-id")


def require_place(home: Path) -> None:
    """Note where the home lies at its first start; later, check that it is there. Blocks.

    Raises:
        HanseError: TAMPERED where it is not. The secrets of sums under way are erased then.
    """
    database, here = Database(home / FILE, _TABLE), _Here(home)
    noted = database.do(here.first)
    if noted != here.now():
        shutil.rmtree(home / PAIRWISE, ignore_errors=True)
        raise HanseError(
            ErrorCode.TAMPERED,
            f"{home}: this home was copied, moved or restored; what it answered since is not in it",
            hint="secrets of sums under way were erased; stop all other copies, then: python -m hanse_datapod moved "
            "--home DIR --reason TEXT",
        )


def accept_place(home: Path) -> bool:
    """Note where the home lies now; False: it was there before."""
    database, here = Database(home / FILE, _TABLE), _Here(home)
    if database.do(here.first) == here.now():
        return False
    shutil.rmtree(home / PAIRWISE, ignore_errors=True)
    database.do(here.anew)
    return True


class _Here:
    def __init__(self, home: Path) -> None:
        self._home = home

    def now(self) -> str:
        machine = _MACHINE.read_text().strip() if _MACHINE.exists() else ""
        inode, system = (self._home / FILE).stat().st_ino, os.statvfs(self._home).f_fsid
        return f"inode {inode}, file system {system:x}, machine {machine}"

    def first(self, database: sqlite3.Connection) -> str:
        database.execute("INSERT OR IGNORE INTO place VALUES (1, ?)", (self.now(),))
        return str(one(database, "SELECT value FROM place")[0])

    def anew(self, database: sqlite3.Connection) -> None:
        database.execute("UPDATE place SET value = ?", (self.now(),))
