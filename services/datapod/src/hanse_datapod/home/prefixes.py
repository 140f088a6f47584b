"""Of which beginnings of numbers a site has counted the cells, in masked sums: the bound of the protocol `quantiles`.

Sums of such counts find any cell of all sites' by its place in their order, the largest too, which one person has. A
search for quartiles asks at each depth for few beginnings, and on the same data for the same ones, whichever job it is
of. Whoever asks for more looks for other cells.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from hanse_datapod.home.database import Database, one
from hanse_datapod.home.works import FILE
from hanse_datapod.policy.refusal import forbidden
from hanse_learning.preparation.order import MOST_PREFIXES, PrefixQuestion
from hanse_schemas.protocols import PROTOCOLS

MOST = 2 * MOST_PREFIXES
"""Of a column and depth, of the same data: a sum of fewer sites may have other quartiles once."""
_KEPT_S = 400 * 86_400.0
TABLE = """
CREATE TABLE IF NOT EXISTS prefixes (
    data TEXT, name TEXT, depth INTEGER, prefix TEXT, at REAL NOT NULL, PRIMARY KEY (data, name, depth, prefix)
) WITHOUT ROWID
"""


class Prefixes:
    """Those of one memory. Methods block, and any thread may call them."""

    def __init__(self, folder: Path) -> None:
        self._database = Database(folder / FILE, TABLE)

    def close(self) -> None:
        """Give the file back; the next change opens it again."""
        self._database.close()

    def ask(self, data: str, question: PrefixQuestion, now: float) -> None:
        """Note what is asked for.

        Args:
            data: fingerprint of the site's.
            now: Unix time.

        Raises:
            HanseError: POLICY where it is of more beginnings than two searches have, whatever runs they were of.
        """

        def do(database: sqlite3.Connection) -> None:
            database.execute("DELETE FROM prefixes WHERE at < ?", (now - _KEPT_S,))
            for name, prefixes in question.prefixes.items():
                rows = [(data, name, question.depth, f"{prefix:x}", now) for prefix in prefixes]
                database.executemany("INSERT OR IGNORE INTO prefixes VALUES (?, ?, ?, ?, ?)", rows)
                counted = "SELECT count(*) FROM prefixes WHERE data = ? AND name = ? AND depth = ?"
                if one(database, counted, data, name, question.depth)[0] > MOST:
                    raise forbidden(
                        "asking.protocols", "quantiles, of other cells than were looked for before",
                        f"those of two searches on the same data, {MOST} beginnings of a depth",
                        hint=PROTOCOLS["quantiles"].instead,
                    )  # fmt: skip

        self._database.do(do)
