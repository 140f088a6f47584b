"""Where a home remembers its masked answers: in itself, or in a folder that homes with the same data share.

A home that is given such a folder later brings along what it has answered; without that, every work could be summed
again with one site fewer. Home and folder have a number in common from then on, so that a home finds out when it is
given another folder, an empty one, or none; and it knows how far its memory has come, so that it finds out when that is
an older copy.
"""

from __future__ import annotations

import logging
import secrets
import sqlite3
from contextlib import closing
from pathlib import Path

from hanse_datapod.home.database import Database, one
from hanse_datapod.home.height import NUMBER, forget_height, require_height
from hanse_datapod.home.prefixes import TABLE as PREFIXES
from hanse_datapod.home.works import FILE, TABLES
from hanse_fabric.errors import ErrorCode, HanseError

_REMEMBERED = (
    "works", "answers", "people", "studied", "cuts", "sketches", "sketched", "forgotten", "kept", "prefixes",
)  # fmt: skip
_ANSWERED = ("works", "sketches", "prefixes")
"""Where one of these has rows, something was asked that must not be forgotten."""
_OF_HOME = """
CREATE TABLE IF NOT EXISTS memory (one INTEGER PRIMARY KEY CHECK (one = 1), number BLOB NOT NULL, state TEXT NOT NULL)
"""
_OF_FOLDER = "CREATE TABLE IF NOT EXISTS homes (number BLOB PRIMARY KEY) WITHOUT ROWID"
_NEW, _THERE, _ACCEPTED = "new", "there", "accepted"
_log = logging.getLogger(__name__)


def memory_of(home: Path, shared: Path | None) -> Path:
    """The folder that the home remembers in; it has all that the home has answered. Blocks.

    The caller holds the home: who answers into its own memory meanwhile would do so behind the back of the other.

    Args:
        shared: the policy's `masking.memory`.

    Raises:
        HanseError: TAMPERED where it lacks what the home has answered, and that cannot be brought along; or where it is
            an older copy.
    """
    folder = home if shared is None else shared
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.resolve() == home.resolve():
        _require_never_elsewhere(home)
        with closing(Database(home / FILE, TABLES)) as memory:
            require_height(home, memory, folder)
        return folder
    with closing(Database(home / FILE, TABLES + PREFIXES + ";" + _OF_HOME)) as own:
        number, state = own.do(_entry)
        with closing(Database(folder / FILE, TABLES + PREFIXES + ";" + _OF_FOLDER)) as memory:
            if memory.do(lambda theirs: _has(theirs, number)):
                require_height(home, memory, folder)
            elif state != _THERE:
                require_height(home, own, home)
            brought = own.do(lambda ours: memory.do(lambda theirs: _join(ours, theirs, number, state, home, folder)))
        own.do(lambda ours: ours.execute("UPDATE memory SET state = ?", (_THERE,)))
    if brought:
        _log.info("what this home has answered was brought to the memory", extra={"home": str(home), "to": str(folder)})
    return folder


def accept_memory(home: Path) -> None:
    """Whichever memory the home has at its next start is the one that it goes on with."""
    forget_height(home)
    with closing(Database(home / FILE, _OF_HOME)) as own:
        entry = (secrets.token_bytes(16), _ACCEPTED)
        own.do(lambda ours: ours.execute("INSERT OR REPLACE INTO memory VALUES (1, ?, ?)", entry))


def _require_never_elsewhere(home: Path) -> None:
    def do(ours: sqlite3.Connection) -> None:
        if one(ours, "SELECT 1 FROM sqlite_master WHERE name = 'memory'") is None:
            return
        row = one(ours, "SELECT state FROM memory")
        if row is not None and row[0] == _THERE:
            raise _lacks(home, home)
        ours.execute("DELETE FROM memory")

    if (home / FILE).exists():
        with closing(Database(home / FILE, "")) as own:
            own.do(do)


def _entry(ours: sqlite3.Connection) -> tuple[bytes, str]:
    ours.execute("INSERT OR IGNORE INTO memory VALUES (1, ?, ?)", (secrets.token_bytes(16), _NEW))
    number, state = one(ours, "SELECT number, state FROM memory")
    return bytes(number), str(state)


def _has(theirs: sqlite3.Connection, number: bytes) -> bool:
    return one(theirs, "SELECT 1 FROM homes WHERE number = ?", number) is not None


def _join(
    ours: sqlite3.Connection, theirs: sqlite3.Connection, number: bytes, state: str, home: Path, folder: Path
) -> bool:
    """Have the home's number in the memory, and what it has answered; True: that was brought along now."""
    if _has(theirs, number):
        return False
    bring = _answered(ours) and not _answered(theirs)
    if state == _THERE or (state == _NEW and _answered(ours) and not bring):
        raise _lacks(home, folder)
    if bring:
        for table in _REMEMBERED:
            rows = ours.execute(f"SELECT * FROM {table}")  # noqa: S608 - names of this module
            names = [column[0] for column in rows.description]
            into = f"INSERT OR REPLACE INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608
            theirs.executemany(into, rows)
    # The home goes on with the count that it knows, of its own memory: that has counted more than the rows that are
    # left of it to bring. So there is no moment in which nobody would notice an older copy.
    theirs.execute("UPDATE height SET number = max(number, ?)", one(ours, NUMBER))
    theirs.execute("INSERT INTO homes VALUES (?)", (number,))
    return bring


def _answered(database: sqlite3.Connection) -> bool:
    return any(one(database, f"SELECT 1 FROM {table} LIMIT 1") is not None for table in _ANSWERED)  # noqa: S608


def _lacks(home: Path, folder: Path) -> HanseError:
    return HanseError(
        ErrorCode.TAMPERED,
        f"{folder}: this memory of masked answers lacks what {home} has answered: a work could be summed again with "
        "one site fewer",
        hint="name the folder that the home had in the policy's masking.memory, or an empty one at first, for the home "
        "that has answered most; where that is lost: hanse site moved --memory --home DIR --reason TEXT",
    )
