"""Of the memory of works: with whom a site's masks were pairwise, and whose sums it helped to unmask.

Sets are columns of the table `answers`, empty where there is a compensator, which remembers for all. What they allow is
said by `hanse_privacy.works.pairwise`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.works.chain import Members
from hanse_privacy.works.codec import decode_set, encode_set
from hanse_privacy.works.pairwise import Past, UnmaskingSession

_SETS = "SELECT id, members, threshold, gap, colluding, revealed FROM answers WHERE members IS NOT NULL"
_OF_WORK, _OF_TAG = f"{_SETS} AND work = ? AND session != ?", f"{_SETS} AND tag = ? AND session != ?"
_NEAR = f"{_OF_TAG} AND work != ?"
_END = (
    "UPDATE answers SET dead = 1 WHERE (work = ?1 OR (tag = ?2 AND tag != x'' "
    "AND (members != ?4 OR threshold != ?5 OR gap != ?6 OR colluding != ?7))) "
    "AND session != ?3 AND revealed IS NULL AND members IS NOT NULL"
)


def past(database: sqlite3.Connection, keys: Sequence[bytes], *, without: bytes = b"") -> Past:
    """What the site did for a work, and for answers that are near.

    Args:
        keys: the work's digest, a tag; empty ones are none.
        without: a session that is left out.
    """
    found: dict[int, Any] = {}
    for query, key in zip((_OF_WORK, _OF_TAG), keys, strict=False):
        if key:
            found |= {row[0]: row for row in database.execute(query, (key, without))}
    return _told(found.values())


def near_past(database: sqlite3.Connection, work: bytes, tag: bytes) -> Past:
    """What the site did for other works than this, with answers of a tag."""
    return _told(database.execute(_NEAR, (tag, b"", work)).fetchall() if tag else ())


def _told(rows: Iterable[Any]) -> Past:
    made = Past()
    for row in sorted(rows):
        among = UnmaskingSession(decode_set(row[1]), row[2], row[3], row[4])
        made = made.after_answer(among)
        if row[5] is not None:
            made = made.after_reveal(among, decode_set(row[5]))
    return made


def end_others(
    database: sqlite3.Connection, work: bytes, near: tuple[bytes, UnmaskingSession] | None = None, *, but: bytes = b""
) -> None:
    """The sums of other sessions of a work, and of those near, that were not unmasked are not unmasked any more.

    Those near among the very same members go on, for whoever unmasks two of them is held to the same survivors: so the
    chunks of a study are masked side by side where all sums have the same members.

    Args:
        near: a tag, and among whom the next answer with it is; None: none of the tag is ended.
    """
    tag, among = near or (b"", UnmaskingSession(frozenset(), 0, 0))
    sets = encode_set(among.members)
    database.execute(_END, (work, tag, but, sets, among.threshold, among.gap, among.colluding))


def keep_among(database: sqlite3.Connection, session: bytes, among: UnmaskingSession) -> None:
    """Remember with whom a session's masks are pairwise.

    Raises:
        HanseError: CONFLICT where they were with others.
    """
    sets = encode_set(among.members)
    [(before,)] = database.execute("SELECT members FROM answers WHERE session = ?", (session,)).fetchall()
    if before not in (None, sets):
        raise HanseError(ErrorCode.CONFLICT, "the session's masks were made with other members")
    database.execute(
        "UPDATE answers SET members = ?, threshold = ?, gap = ?, colluding = ? WHERE session = ?",
        (sets, among.threshold, among.gap, among.colluding, session),
    )


def keep_revealed(database: sqlite3.Connection, session: bytes, survivors: Members) -> None:
    """Remember whose sum the site helps to unmask.

    Raises:
        HanseError: CONFLICT where it was that of others.
    """
    [(before,)] = database.execute("SELECT revealed FROM answers WHERE session = ?", (session,)).fetchall()
    if before is not None and decode_set(before) != survivors:
        raise HanseError(ErrorCode.CONFLICT, "the session's sum was unmasked for other survivors")
    database.execute("UPDATE answers SET revealed = ? WHERE session = ?", (encode_set(survivors), session))
