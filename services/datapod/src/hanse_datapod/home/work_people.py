"""Of the memory of works: on which people they were done, so that two sums of one work never tell of a few.

What is kept of the people are sketches (`hanse_privacy.works.people`). By how many they differ is told to nobody.
"""

from __future__ import annotations

import base64
import sqlite3

from hanse_datapod.policy.refusal import forbidden
from hanse_datapod.worker.port import DataState
from hanse_privacy.works.people import changed

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
        few: how many people must differ from those that it was done on before, or none.

    Raises:
        HanseError: POLICY where few differ.
    """
    if not data.fingerprint:
        return
    people = base64.b64decode(data.people)
    for (before,) in database.execute(_BEFORE, (work, tag, data.fingerprint.encode())).fetchall():
        differ = changed(before, people) if before and people else 0
        if differ is not None and differ < few:
            raise forbidden(
                "masking.changed", "the same work again on data that a few people changed", f"{few} or more",
                hint="the difference of the two sums could tell about them; ask for something else, or wait",
            )  # fmt: skip


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
