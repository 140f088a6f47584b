"""Of the memory of works: what answers were cut to before they were summed. A work is not summed again under others.

Between two limits only the largest answers lose something. Put below the largest one alone, the lower limit makes two
sums of the same sites whose difference is that site's. So it is with the step of the grid to which numbers are rounded:
where it is twice what all but one site have, the sum is of that one.
"""

from __future__ import annotations

import sqlite3

from hanse_datapod.home.database import one
from hanse_fabric.errors import ErrorCode, HanseError

KEPT = 16
"""Bytes of a cut's digest."""
FINE = 30
"""Fraction bits from which on grids count as one: packed rings have so many or more, by what the weights are."""
APART = 3
"""So many steps of two the grids of one work may be apart, as they are where an eighth of the sites, or eight times as
many, take part."""
SKETCHES = """
CREATE TABLE IF NOT EXISTS sketches (id INTEGER PRIMARY KEY, tag BLOB NOT NULL, numbers BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS sketched (id INTEGER PRIMARY KEY, at REAL NOT NULL);
CREATE INDEX IF NOT EXISTS sketched_by_time ON sketched (at);
CREATE TABLE IF NOT EXISTS kept (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
"""
"""What tags are known by (`tags.Tags`), and when each was made: one without a sketch is never given again.

Beside them the home's secrets."""
FIXED = "fixed"
"""Name of the one tag that is kept for all answers whose members are fixed."""
OF_SUMS = "sums of "
"""Begins the name, which goes on with a project's, of the one tag of its sums in the middle of a step."""
LASTING = f"SELECT value FROM kept WHERE name = '{FIXED}' OR name GLOB '{OF_SUMS}*'"  # noqa: S608
"""The tags of answers that have the same members whatever is asked."""
CUTS = f"""{SKETCHES}
CREATE TABLE IF NOT EXISTS cuts (work BLOB PRIMARY KEY, cut BLOB NOT NULL) WITHOUT ROWID;
"""


def check_cut(database: sqlite3.Connection, work: bytes, cut: bytes, grids: bytes = b"") -> None:
    """Whether a work was cut to these limits before, or to none that is known.

    Args:
        work: its digest, or the tag of answers that one is near to; empty: of none.
        grids: fraction bits of those that its numbers are rounded to, a byte each; none: they are whole.

    Raises:
        HanseError: POLICY where it was cut to others.
    """
    before = work and one(database, "SELECT cut FROM cuts WHERE work = ?", work)
    if not before:
        return
    kept = bytes(before[0])
    # Of what earlier releases kept, no grids are known.
    pairs = zip(grids, kept[KEPT:], strict=False)
    if kept[:KEPT] != cut[:KEPT] or any(abs(min(now, FINE) - min(then, FINE)) > APART for now, then in pairs):
        raise HanseError(
            ErrorCode.POLICY,
            "the masked sum is refused: this work, or one near to it, was cut to other limits before",
            hint="bound, bits, largest_weight, out_of_range, clip, clip_norm and bounds of metrics are those of before "
            "where a job is repeated; with another seed it begins with another model",
        )


def keep_cut(database: sqlite3.Connection, work: bytes, cut: bytes, grids: bytes = b"") -> None:
    """Remember what a work is cut to, and on which grids; as for `check_cut`."""
    if work:
        database.execute("INSERT OR IGNORE INTO cuts VALUES (?, ?)", (work, cut[:KEPT] + grids))


def forget_cuts(database: sqlite3.Connection) -> None:
    """Forget those of works and tags that do not come again."""
    database.execute(
        "DELETE FROM cuts WHERE work NOT IN (SELECT work FROM answers) AND work NOT IN (SELECT tag FROM sketches)"
    )
