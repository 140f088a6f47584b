"""Under which of the project's terms runs have begun at this site: others that are agreed to since are for those that
begin later."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from hanse_datapod.home.database import Database, one
from hanse_datapod.home.works import FILE

KEPT = 10_000
"""Runs; the oldest are forgotten, and go on under the newest terms alone."""
_TABLE = """
CREATE TABLE IF NOT EXISTS begun_under (id INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL UNIQUE,
    terms TEXT NOT NULL);
"""


class BegunUnder:
    """The runs of one home. Methods block, and any thread may call them."""

    def __init__(self, home: Path) -> None:
        self._database = Database(home / FILE, _TABLE)
        self._newest = ("", "")

    def close(self) -> None:
        """Give the file back; the next change opens it again."""
        self._database.close()

    def knows(self, run: str, terms: str) -> bool:
        """Whether a run has begun under these terms."""
        query = "SELECT 1 FROM begun_under WHERE run = ? AND terms = ?"
        return (run, terms) == self._newest or bool(self._database.do(lambda found: one(found, query, run, terms)))

    def keep(self, run: str, terms: str) -> None:
        """Note that a run begins under these terms, unless it has begun before.

        Raises:
            HanseError: NO_SPACE.
        """
        if (run, terms) == self._newest:
            return

        def do(database: sqlite3.Connection) -> None:
            database.execute("INSERT OR IGNORE INTO begun_under (run, terms) VALUES (?, ?)", (run, terms))
            database.execute("DELETE FROM begun_under WHERE id <= (SELECT max(id) FROM begun_under) - ?", (KEPT,))

        self._database.do(do)
        self._newest = (run, terms)
