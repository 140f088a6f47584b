"""Which runs have asked this site since when: for the policy's limit of runs a day."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from hanse_datapod.home.database import Database, one
from hanse_datapod.home.works import FILE
from hanse_datapod.policy.limits import DAY_S
from hanse_datapod.policy.refusal import forbidden

_TABLE = "CREATE TABLE IF NOT EXISTS runs (run TEXT PRIMARY KEY, first REAL NOT NULL) WITHOUT ROWID"


class Runs:
    """The runs of one home. Methods block, and any thread may call them."""

    def __init__(self, home: Path) -> None:
        self._database = Database(home / FILE, _TABLE)

    def begin(self, run: str, now: float, most: int) -> None:
        """Note that a run asks something of this site.

        Args:
            now: Unix time.
            most: so many may begin a day.

        Raises:
            HanseError: POLICY where this would be one more.
        """

        def do(database: sqlite3.Connection) -> None:
            if one(database, "SELECT 1 FROM runs WHERE run = ?", run) is not None:
                return
            database.execute("DELETE FROM runs WHERE first < ?", (now - 40 * DAY_S,))
            if one(database, "SELECT count(*) FROM runs WHERE first >= ?", now - DAY_S)[0] >= most:
                raise forbidden(
                    "asking.runs", "one more run within a day", str(most),
                    hint="wait until tomorrow, or have the site's administrator allow more",
                )  # fmt: skip
            database.execute("INSERT INTO runs VALUES (?, ?)", (run, now))

        self._database.do(do)
