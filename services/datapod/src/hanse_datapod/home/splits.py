"""How this site sets test data aside in each of its runs: by keyed hashes under `dp_sgd`, whatever was before.

The site decides that by itself, for a hub that chose it could have one person more move others. So no run, however old
it is, has `dp_sgd` and a shuffle. An evaluation without terms of its own follows its run: whom it tests on must be none
of those whom the run trains on. That alone is why runs are written down.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from hanse_datapod.data.settings import Split, split_of
from hanse_datapod.home.database import Database, one
from hanse_datapod.home.works import FILE
from hanse_fabric.messages import Task, TaskKind

_TABLE = "CREATE TABLE IF NOT EXISTS keyed_runs (run TEXT PRIMARY KEY) WITHOUT ROWID;"
_KEEP = "INSERT INTO keyed_runs VALUES (?) ON CONFLICT (run) DO NOTHING"


class Splits:
    """The runs of one home. Methods block, and any thread may call them."""

    def __init__(self, home: Path) -> None:
        self._database = Database(home / FILE, _TABLE)
        self._newest: tuple[str, bool] = ("", False)

    def close(self) -> None:
        """Give the file back; the next change opens it again."""
        self._database.close()

    def of(self, task: Task) -> Split:
        """How test data are set aside for a task. A run is written down by its first task that hides an example, or
        whoever has several; a question before a run writes nothing.

        Raises:
            HanseError: NO_SPACE.
        """
        if split_of(None if task.privacy is None else task.privacy.privacy) == "keyed":
            if task.kind is not TaskKind.CHECK and not self._known(task.run):
                self._keep(task.run)
            return "keyed"
        return "keyed" if self._known(task.run) else "shuffled"

    def _known(self, run: str) -> bool:
        newest, known = self._newest
        if newest == run:
            return known
        query = "SELECT 1 FROM keyed_runs WHERE run = ?"
        known = self._database.do(lambda database: one(database, query, run)) is not None
        self._newest = run, known
        return known

    def _keep(self, run: str) -> None:
        def do(database: sqlite3.Connection) -> None:
            database.execute(_KEEP, (run,))

        self._database.do(do)
        self._newest = run, True
