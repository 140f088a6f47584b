"""Which sets each work was summed over, in the compensator's own file: what the hub's keepers cannot make undone.

A work has several keys: its digest, and the tags by which its members say that their answers are near to earlier ones.
The chain rule holds for the sets of each. Beyond the limit the oldest sets are forgotten; their keys stay, and what has
one of them is never summed again. Where even the keys are too many, nothing new is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.works.chain import Members, SummedSets
from hanse_privacy.works.codec import decode, encode

LIMIT = 1 << 30
ON_THE_DISK = "PRAGMA synchronous = EXTRA"
"""A claim is made by removing SQLite's journal. FULL does not wait until the folder has that: after a power cut the
journal could come back, and take the claim back."""
_FORGOTTEN_AT_ONCE = 16
_TABLES = """
CREATE TABLE IF NOT EXISTS members (place INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS works (id INTEGER PRIMARY KEY AUTOINCREMENT, used INTEGER NOT NULL, sets BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS works_by_use ON works (used);
CREATE TABLE IF NOT EXISTS keys (key BLOB PRIMARY KEY, work INTEGER NOT NULL) WITHOUT ROWID;
"""
_FORGET = "DELETE FROM works WHERE id IN (SELECT id FROM works ORDER BY used LIMIT ?)"


@dataclass(frozen=True, slots=True)
class Claim:
    """A set that is to be summed.

    Attributes:
        work: the work's digest, 32 bytes.
        members: who is in the set.
        gap: the largest minimum that they want, those who may collude included.
        tags: of the members' answers, 16 bytes each; one that comes again says that its answer is near an earlier one.
    """

    work: bytes
    members: Members
    gap: int
    tags: tuple[bytes, ...] = ()


class WorkFile:
    """The tables of works in a database that replicas of one machine may share. Methods block.

    Args:
        path: of the database, which exists.
        limit: its bytes.
    """

    def __init__(self, path: Path, limit: int = LIMIT) -> None:
        self._path, self._limit = path, limit
        with closing(self._open()) as database:
            database.executescript(f"BEGIN IMMEDIATE;{_TABLES}COMMIT;")  # one wait for the disk

    def claim(self, claim: Claim, known: SummedSets) -> SummedSets:
        """Remember a set, durably.

        Args:
            known: what the bus tells of this work. The set must fit that, too; nothing of it is kept here, for the bus
                is the hub's: a set that it only says was summed would be summed again, also of works that are near.

        Returns:
            SummedSets: the work's sets, as both know them now.

        Raises:
            HanseError: CONFLICT or QUORUM by the chain rule (`SummedSets.admit`); GONE where its sets were forgotten;
                NO_SPACE where nothing more can be remembered; UNAVAILABLE when the file cannot be written. Nothing may
                be summed then.
        """
        try:
            with closing(self._open()) as database:
                # One writer at a time, from the first look to the last word.
                database.execute("BEGIN IMMEDIATE")
                with database:
                    return self._claimed(database, claim, known)
        except sqlite3.Error as error:
            raise HanseError(ErrorCode.UNAVAILABLE, f"memory {self._path}: {error}") from None

    def known(self, keys: Sequence[bytes]) -> dict[bytes, SummedSets]:
        """The sets of works, by those of the keys (digests, tags) that are known.

        Raises:
            HanseError: GONE where sets were forgotten; UNAVAILABLE when the file cannot be read.
        """
        try:
            with closing(self._open()) as database:
                rows = {key: _one(database, "SELECT work FROM keys WHERE key = ?", key) for key in keys}
                return {key: self._read(database, row[0]) for key, row in rows.items() if row is not None}
        except sqlite3.Error as error:
            raise HanseError(ErrorCode.UNAVAILABLE, f"memory {self._path}: {error}") from None

    def _claimed(self, database: sqlite3.Connection, claim: Claim, known: SummedSets) -> SummedSets:
        keys = (claim.work, *dict.fromkeys(claim.tags))
        rows = {key: _one(database, "SELECT work FROM keys WHERE key = ?", key) for key in keys}
        found: dict[bytes, int] = {key: row[0] for key, row in rows.items() if row is not None}
        before = {number: self._read(database, number) for number in dict.fromkeys(found.values())}
        own = found.get(claim.work)
        together = (SummedSets() if own is None else before[own]).joined(known).admit(claim.members, claim.gap)
        after = {number: work.admit(claim.members, claim.gap) for number, work in before.items()}
        new = [key for key in keys if key not in found]
        if own is not None and after == before and not new:
            return together
        self._make_room(database)
        now = int(database.execute("SELECT coalesce(max(used), 0) + 1 FROM works").fetchone()[0])
        for number, work in after.items():
            sets = self._encode(database, work)
            database.execute("UPDATE works SET sets = ?, used = ? WHERE id = ?", (sets, now, number))
        if own is None:
            # A near work's sets are this one's too: its key leads there.
            sets = self._encode(database, SummedSets().admit(claim.members, claim.gap))
            own = database.execute("INSERT INTO works (used, sets) VALUES (?, ?)", (now, sets)).lastrowid
        database.executemany("INSERT INTO keys VALUES (?, ?)", [(key, own) for key in new])
        return together

    def _read(self, database: sqlite3.Connection, number: int) -> SummedSets:
        row = _one(database, "SELECT sets FROM works WHERE id = ?", number)
        if row is None:
            raise HanseError(
                ErrorCode.GONE,
                "this work, or one near to it, was summed so long ago that its sets are forgotten, and is not again",
                hint="change what is asked, or have the compensator's operator give it a larger memory",
            )
        return decode(row[0], _Keys(database))

    def _encode(self, database: sqlite3.Connection, work: SummedSets) -> bytes:
        database.executemany("INSERT OR IGNORE INTO members (key) VALUES (?)", [(key,) for key in sorted(work.members)])
        select = "SELECT place FROM members WHERE key = ?"
        return encode(work, {key: database.execute(select, (key,)).fetchone()[0] for key in work.members})

    def _make_room(self, database: sqlite3.Connection) -> None:
        while self._used(database) > self._limit:
            if not database.execute(_FORGET, (_FORGOTTEN_AT_ONCE,)).rowcount:
                raise HanseError(
                    ErrorCode.NO_SPACE,
                    f"the compensator's memory of works is full ({self._limit >> 20} MiB): no new work is summed",
                    hint="its operator gives it a larger one, HANSE_COMPENSATOR_MEMORY_MIB",
                )

    def _used(self, database: sqlite3.Connection) -> int:
        pages, free, size = (
            int(database.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, timeout=10.0, isolation_level=None)
        database.execute(ON_THE_DISK)
        return database


class _Keys(dict[int, bytes]):
    """Members' keys by their places, looked up where they are asked for."""

    def __init__(self, database: sqlite3.Connection) -> None:
        super().__init__()
        self._database = database

    def __missing__(self, place: int) -> bytes:
        row = _one(self._database, "SELECT key FROM members WHERE place = ?", place)
        if row is None:
            raise LookupError(place)
        self[place] = bytes(row[0])
        return self[place]


def _one(database: sqlite3.Connection, query: str, value: object) -> tuple[Any, ...] | None:
    row: tuple[Any, ...] | None = database.execute(query, (value,)).fetchone()
    return row
