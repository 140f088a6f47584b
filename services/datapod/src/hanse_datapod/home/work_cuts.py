"""Of the memory of works: what answers were cut to before they were summed. A work is not summed again under others.

Between two limits only the largest answers lose something. Put below the largest one alone, the lower limit makes two
sums of the same sites whose difference is that site's.
"""

from __future__ import annotations

import sqlite3

from hanse_datapod.home.database import one
from hanse_fabric.errors import ErrorCode, HanseError

KEPT = 16
"""Bytes of a cut's digest."""
SKETCHES = """
CREATE TABLE IF NOT EXISTS sketches (id INTEGER PRIMARY KEY, tag BLOB NOT NULL, numbers BLOB NOT NULL);
"""
"""What tags are known by (`tags.Tags`): one without a sketch is never given again."""
CUTS = f"""{SKETCHES}
CREATE TABLE IF NOT EXISTS cuts (work BLOB PRIMARY KEY, cut BLOB NOT NULL) WITHOUT ROWID;
"""


def check_cut(database: sqlite3.Connection, work: bytes, cut: bytes) -> None:
    """Whether a work was cut to these limits before, or to none that is known.

    Args:
        work: its digest, or the tag of answers that one is near to; empty: of none.

    Raises:
        HanseError: POLICY where it was cut to others.
    """
    before = work and one(database, "SELECT cut FROM cuts WHERE work = ?", work)
    if before and bytes(before[0]) != cut[:KEPT]:
        raise HanseError(
            ErrorCode.POLICY,
            "the masked sum is refused: this work, or one near to it, was cut to other limits before",
            hint="bound, largest_weight, out_of_range, clip, clip_norm and bounds of metrics are those of before where "
            "a job is repeated; with another seed it begins with another model",
        )


def keep_cut(database: sqlite3.Connection, work: bytes, cut: bytes) -> None:
    """Remember what a work is cut to; `work` as for `check_cut`."""
    if work:
        database.execute("INSERT OR IGNORE INTO cuts VALUES (?, ?)", (work, cut[:KEPT]))


def forget_cuts(database: sqlite3.Connection) -> None:
    """Forget those of works and tags that do not come again."""
    database.execute(
        "DELETE FROM cuts WHERE work NOT IN (SELECT work FROM answers) AND work NOT IN (SELECT tag FROM sketches)"
    )
