"""How this site sets test data aside in each of its runs: in the whole run as when its first private task came.

The site decides that by itself, for a hub that chose it could have one person more move others. A run that was charged
before there was a choice goes on with the shuffle that it began with.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hanse_datapod.data.settings import Split, split_of
from hanse_datapod.home.database import Database, one
from hanse_datapod.home.works import FILE
from hanse_fabric.messages import Task, TaskKind

_TABLE = """
CREATE TABLE IF NOT EXISTS splits (run TEXT PRIMARY KEY, before INTEGER NOT NULL, units INTEGER NOT NULL) WITHOUT ROWID;
"""
_KEEP = (
    "INSERT INTO splits VALUES (?, ?, ?) ON CONFLICT (run) DO UPDATE SET units = max(units, excluded.units) "
    "RETURNING before, units"
)


@dataclass(frozen=True, slots=True)
class _Private:
    """A private run.

    Attributes:
        before: whether it was charged before there was a choice.
        units: whether some task of it hides an example, or whoever has several.
    """

    before: bool
    units: bool

    @property
    def split(self) -> Split:
        return "keyed" if self.units and not self.before else "shuffled"


class Splits:
    """The runs of one home. Methods block, and any thread may call them.

    Args:
        charged: whether the site's ledger was charged for a task's run.
    """

    def __init__(self, home: Path, charged: Callable[[Task], bool]) -> None:
        self._database, self._charged = Database(home / FILE, _TABLE), charged
        self._newest: tuple[str, _Private | None] = ("", None)

    def of(self, task: Task) -> Split:
        """How test data are set aside for a task. What a run's first private task wants is written down; a question
        before a run writes nothing.

        Raises:
            HanseError: NO_SPACE; TAMPERED of the ledger.
        """
        known, private = self._known(task.run), task.privacy is not None
        units = split_of(None if task.privacy is None else task.privacy.privacy) == "keyed"
        if private and (known is None or (units and not known.units)):
            # Of whatever hides something: a run that was charged, and is not known here, is of before.
            known = _Private(self._charged(task) if known is None else known.before, units)
            if task.kind is not TaskKind.CHECK:
                known = self._keep(task.run, known)
        return "shuffled" if known is None else known.split

    def _known(self, run: str) -> _Private | None:
        newest, known = self._newest
        if newest == run:
            return known
        query = "SELECT before, units FROM splits WHERE run = ?"
        row = self._database.do(lambda database: one(database, query, run))
        found = None if row is None else _Private(bool(row[0]), bool(row[1]))
        self._newest = run, found
        return found

    def _keep(self, run: str, private: _Private) -> _Private:
        def do(database: sqlite3.Connection) -> _Private:
            before, units = one(database, _KEEP, run, private.before, private.units)
            return _Private(bool(before), bool(units))

        kept = self._database.do(do)
        self._newest = run, kept
        return kept
