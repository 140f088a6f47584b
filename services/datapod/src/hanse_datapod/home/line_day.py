"""What this site's line has carried within a day: models, extras and updates, for the policy's `limits.mib_a_day`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from hanse_datapod.home.database import Database, one
from hanse_datapod.home.works import FILE
from hanse_datapod.policy.limits import DAY_S
from hanse_datapod.policy.refusal import forbidden
from hanse_fabric.messages import ObjectRef

_TABLE = (
    "CREATE TABLE IF NOT EXISTS moved (name TEXT PRIMARY KEY, at REAL NOT NULL, size INTEGER NOT NULL) WITHOUT ROWID"
)


class LineDay:
    """The bytes of one home. What has the same content counts once a day: it is fetched once. Methods block, and any
    thread may call them."""

    def __init__(self, home: Path) -> None:
        self._database = Database(home / FILE, _TABLE)

    def close(self) -> None:
        """Give the file back; the next change opens it again."""
        self._database.close()

    def begin(self, needed: Iterable[ObjectRef], now: float, mib: float) -> None:
        """Count what a task needs of its model and extras.

        Args:
            needed: objects.
            now: Unix time.
            mib: so many may pass within a day.

        Raises:
            HanseError: POLICY where these would be more.
        """
        sizes = {ref.digest: ref.size for ref in needed}

        def do(database: sqlite3.Connection) -> None:
            database.execute("DELETE FROM moved WHERE at < ?", (now - DAY_S,))
            spent = one(database, "SELECT coalesce(sum(size), 0) FROM moved")[0]
            fresh = {
                name: size for name, size in sizes.items()
                if one(database, "SELECT 1 FROM moved WHERE name = ?", name) is None
            }  # fmt: skip
            more = sum(fresh.values())
            if spent + more > mib * 2**20:
                raise forbidden(
                    "limits.mib_a_day", f"{more} bytes more, after {spent} within a day", f"{mib:g} MiB",
                    hint="this site sits out until a part of the day has passed, or its administrator allows more",
                )  # fmt: skip
            _keep(database, fresh.items(), now)

        self._database.do(do)

    def sent(self, refs: Iterable[ObjectRef | None], now: float) -> None:
        """Count what the site has made and sends; it may pass the limit, for the work is done."""
        sizes = {ref.digest: ref.size for ref in refs if ref is not None}
        self._database.do(lambda database: _keep(database, sizes.items(), now))


def _keep(database: sqlite3.Connection, sizes: Iterable[tuple[str, int]], now: float) -> None:
    database.executemany("INSERT OR IGNORE INTO moved VALUES (?, ?, ?)", [(name, now, size) for name, size in sizes])
