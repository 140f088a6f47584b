"""Which runs have asked this site since when, what was asked of it before runs, and which evaluations of models: for
the policy's limits of each a day. They are counted apart, so that no number of questions keeps a run away.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Literal

from hanse_datapod.home.database import Database, one
from hanse_datapod.home.works import FILE
from hanse_datapod.policy.limits import DAY_S
from hanse_datapod.policy.refusal import forbidden

Counted = Literal["runs", "questions", "evaluations"]
"""Tables, and rules of the policy's section `asking`."""
_TABLES: dict[Counted, str] = {
    "runs": "CREATE TABLE IF NOT EXISTS runs (run TEXT PRIMARY KEY, first REAL NOT NULL) WITHOUT ROWID",
    "questions": "CREATE TABLE IF NOT EXISTS questions (run TEXT PRIMARY KEY, first REAL NOT NULL) WITHOUT ROWID",
    "evaluations": "CREATE TABLE IF NOT EXISTS evaluations (task TEXT PRIMARY KEY, first REAL NOT NULL) WITHOUT ROWID",
}
_STATEMENTS: dict[Counted, tuple[str, str, str, str]] = {
    "runs": (
        "SELECT 1 FROM runs WHERE run = ?", "DELETE FROM runs WHERE first < ?",
        "SELECT count(*) FROM runs WHERE first >= ?", "INSERT INTO runs VALUES (?, ?)",
    ),
    "questions": (
        "SELECT 1 FROM questions WHERE run = ?", "DELETE FROM questions WHERE first < ?",
        "SELECT count(*) FROM questions WHERE first >= ?", "INSERT INTO questions VALUES (?, ?)",
    ),
    "evaluations": (
        "SELECT 1 FROM evaluations WHERE task = ?", "DELETE FROM evaluations WHERE first < ?",
        "SELECT count(*) FROM evaluations WHERE first >= ?", "INSERT INTO evaluations VALUES (?, ?)",
    ),
}  # fmt: skip
_ONE_MORE: dict[Counted, str] = {
    "runs": "one more run within a day", "questions": "one more question within a day",
    "evaluations": "metrics of one more model within a day",
}  # fmt: skip


class Runs:
    """The runs of one home. Methods block, and any thread may call them."""

    def __init__(self, home: Path) -> None:
        self._database = Database(home / FILE, ";".join(_TABLES.values()))

    def close(self) -> None:
        """Give the file back; the next change opens it again."""
        self._database.close()

    def begin(self, asked: str, now: float, most: int, *, of: Counted = "runs") -> None:
        """Note that something is asked of this site.

        Args:
            asked: by which run; of questions and evaluations, what is asked, as a digest.
            now: Unix time.
            most: so many may begin a day.
            of: what it is counted among.

        Raises:
            HanseError: POLICY where this would be one more.
        """

        def do(database: sqlite3.Connection) -> None:
            known, old, of_the_day, add = _STATEMENTS[of]
            if one(database, known, asked) is not None:
                return
            database.execute(old, (now - 40 * DAY_S,))
            if one(database, of_the_day, now - DAY_S)[0] >= most:
                raise forbidden(
                    f"asking.{of}", _ONE_MORE[of], str(most),
                    hint="wait until tomorrow, or have the site's administrator allow more",
                )  # fmt: skip
            database.execute(add, (asked, now))

        self._database.do(do)
