"""Of the memory of works: on which people they were done, so that two sums of one work never tell of a few.

What is kept of the people are sketches (`hanse_privacy.works.people`), of all of them, and of those who are trained on
and those who are tested on. By how many they differ is told to nobody.
"""

from __future__ import annotations

import base64
import sqlite3
from itertools import zip_longest

from hanse_datapod.policy.refusal import forbidden
from hanse_datapod.worker.port import DataState
from hanse_privacy.works.people_changed import changed, parts_of

_KEEP = "INSERT INTO people VALUES (?, ?) ON CONFLICT (data) DO UPDATE SET sketch = excluded.sketch WHERE sketch = x''"
_BEFORE = (
    "SELECT DISTINCT sketch FROM answers JOIN people ON people.data = answers.data WHERE (work = ?1 OR (tag = ?2 AND "
    "tag != x'')) AND answers.data NOT IN (?3, x'')"
)


def keep_people(database: sqlite3.Connection, data: DataState) -> None:
    """Remember the people that an answer is made of."""
    database.execute(_KEEP, (data.fingerprint.encode(), base64.b64decode(data.people)))
    if data.ids:
        database.execute("INSERT OR IGNORE INTO studied VALUES (?)", (base64.b64decode(data.ids),))


def check_changed(database: sqlite3.Connection, work: bytes, tag: bytes, data: DataState, few: int) -> None:
    """Whether a work, or one near to it, may be done on these data.

    Args:
        tag: of answers that it is near to; empty: of none.
        few: how many people must differ from those that it was done on before, or none; also among those who are
            trained on, and among those who are tested on, where any of these do.

    Raises:
        HanseError: POLICY where few differ.
    """
    if not data.fingerprint:
        return
    people = base64.b64decode(data.people)
    for (before,) in database.execute(_BEFORE, (work, tag, data.fingerprint.encode())).fetchall():
        if _differ_by_few(before, people, few):
            raise forbidden(
                "masking.changed", "the same work again on data that a few people changed", f"{few} or more",
                hint="the difference of the two sums could tell about them; ask for something else, or wait",
            )  # fmt: skip


def _differ_by_few(before: bytes, now: bytes, few: int) -> bool:
    if not before or not now:
        return few > 0
    (whole, *parts), (whole_now, *parts_now) = parts_of(before), parts_of(now)
    in_all = changed(whole, whole_now)
    if in_all is not None and in_all < few:
        return True
    if not parts or not parts_now:  # an earlier release has kept none of the one
        return False
    nobody = bytes(len(whole))
    in_parts = [changed(*both) for both in zip_longest(parts, parts_now, fillvalue=nobody)]
    return any(differ is not None and 0 < differ < few for differ in in_parts)


def check_studied(database: sqlite3.Connection, data: DataState, differ: int) -> None:
    """Whether these people may be studied.

    Args:
        differ: by how many they must differ from those of an earlier study, or be the same; 0: by any.

    Raises:
        HanseError: POLICY where it is fewer.
    """
    ids = base64.b64decode(data.ids)
    for (before,) in database.execute("SELECT ids FROM studied") if ids and differ else ():
        found = changed(before, ids)
        if found is not None and 0 < found < differ:
            raise forbidden(
                "asking.differ", "a study whose people are an earlier one's but for a few", f"{differ} or more",
                hint="the difference of two such studies tells about these few",
            )  # fmt: skip
