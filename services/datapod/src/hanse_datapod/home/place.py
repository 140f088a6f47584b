"""Where a home lies. One that was copied or restored may have made masks before that it does not remember.

So a home that finds itself elsewhere, by inode, file system or machine, erases the secrets of sums under way, and its
datapod does not start until the administrator says why it was moved. Neither does one whose memory is gone, with the
place in it, though its log has what it did for a task. Signs of life name the place, so
that a hub notices two. What a snapshot brings back in place goes unseen;
so does a restored home whose inode has the old number, on a file system that keeps no generations of inodes.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sqlite3
import struct
import threading
from contextlib import closing
from pathlib import Path

from hanse_datapod.home.database import Database, one
from hanse_datapod.home.folders import PAIRWISE
from hanse_datapod.home.outbox import LOG
from hanse_datapod.home.outbox import NAME as LOG_NAME
from hanse_datapod.home.works import FILE
from hanse_fabric.chain import entries_with
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey

_TABLE = "CREATE TABLE IF NOT EXISTS place (number INTEGER PRIMARY KEY CHECK (number = 1), value TEXT NOT NULL)"
_MACHINE = Path("/etc/machine-id")
_GET_GENERATION = 0x80087601
"""Linux: FS_IOC_GETVERSION."""
_turn = threading.Lock()
_opened: dict[Path, int] = {}


def require_place(home: Path) -> None:
    """Note where the home lies at its first start; later, check that it is there. Blocks.

    Raises:
        HanseError: TAMPERED where it is not, or where that is not known any more. The secrets of sums under way are
            erased then.
    """
    with closing(Database(home / FILE, _TABLE)) as database:
        here = _here(database, home)
        noted = database.do(_noted)
        if noted is None and not _has_worked(home):
            noted = database.do(lambda open_: _note(open_, here))
    if noted != here:
        shutil.rmtree(home / PAIRWISE, ignore_errors=True)
        if noted is None:
            raise HanseError(
                ErrorCode.TAMPERED,
                f"{home / FILE}: it is gone, and with it what this home has answered by its log",
                hint="secrets of sums under way were erased; restore its newest copy; where there is none: "
                "python -m hanse_datapod moved --memory --home DIR --reason TEXT",
            )
        raise HanseError(
            ErrorCode.TAMPERED,
            f"{home}: this home was copied, moved or restored; what it answered since is not in it",
            hint="secrets of sums under way were erased; stop all other copies, then: python -m hanse_datapod moved "
            "--home DIR --reason TEXT",
        )


def accept_place(home: Path) -> bool:
    """Note where the home lies now; False: it was there before."""
    with closing(Database(home / FILE, _TABLE)) as database:
        here = _here(database, home)
        noted = database.do(_noted)
        if noted == here:
            return False
        moved = noted is not None or _has_worked(home)
        if moved:
            shutil.rmtree(home / PAIRWISE, ignore_errors=True)
        database.do(lambda open_: _note(open_, here))
    return moved


def _noted(database: sqlite3.Connection) -> str | None:
    row = one(database, "SELECT value FROM place")
    return None if row is None else str(row[0])


def _note(database: sqlite3.Connection, here: str) -> str:
    database.execute("INSERT OR REPLACE INTO place VALUES (1, ?)", (here,))
    return here


def _has_worked(home: Path) -> bool:
    """Whether the log says that something left for a task. A datapod that writes so has noted its place before; one of
    release 0.1.0 noted none, and its log does not say of what task an entry is."""
    if not (home / LOG).exists():
        return False
    return any("task" in entry for entry in entries_with(home, LOG_NAME, b'"task":'))


def _here(database: Database, home: Path) -> str:
    database.do(lambda _: None)  # the file is there now
    machine = _MACHINE.read_text().strip() if _MACHINE.exists() else ""
    return f"inode {inode(home / FILE)}, file system {os.statvfs(home).f_fsid:x}, machine {machine}"


def told_place(home: Path, key: SigningKey) -> str:
    """The word by which the hub tells this place from others: 32 hexadecimal digits, which only who has the site's key
    can make, and of which nobody learns where the home lies. Blocks."""
    with closing(Database(home / FILE, _TABLE)) as database:
        here = _here(database, home)
    return hashlib.sha256(key.sign(f"hanse place: {here}".encode())).hexdigest()[:32]


def inode(file: Path) -> str:
    """A file's number and generation, which tells it from a removed one of the same number; "none" where there is none.

    The file stays open in this process: to close it would end the locks that SQLite has on it here, and whoever opens
    the database next would take it for unused, and remove what is appended to it."""
    with _turn:
        descriptor = _open(file)
        try:
            generation = str(struct.unpack("I", fcntl.ioctl(descriptor, _GET_GENERATION, bytes(8))[:4])[0])
        except OSError:
            generation = "none"
        return f"{os.fstat(descriptor).st_ino} of generation {generation}"


def _open(file: Path) -> int:
    known = _opened.get(file)
    if known is not None:
        if os.path.samestat(os.fstat(known), file.stat()):
            return known
        os.close(known)  # of a file that was replaced
    _opened[file] = os.open(file, os.O_RDONLY)
    return _opened[file]
