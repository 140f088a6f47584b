"""Tags: by which a site says, to those who sum masks, that an answer is near to an earlier one, and nothing else.

What the site keeps of its newest answers is the direction of 64 numbers of each, under a secret of its own
(`hanse_privacy.works.near`). Loads numpy.
"""

from __future__ import annotations

import secrets
import sqlite3
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from hanse_datapod.home.database import Database, one
from hanse_datapod.home.work_cuts import SKETCHES
from hanse_datapod.home.works import FILE
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.works.near import NUMBERS, Sketch, nearest, sketch

KEPT = 1000
TAG_BYTES = 16
_SECRET, _FIXED, _BLINDING = "secret", "fixed", "blinding"
_TABLES = """
CREATE TABLE IF NOT EXISTS kept (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
"""


class Tags:
    """The tags of one home. Methods block, and any thread may call them."""

    def __init__(self, home: Path) -> None:
        self._database = Database(home / FILE, _TABLES + SKETCHES)

    def of(self, update: Path, near: float) -> tuple[bytes, bool]:
        """The tag of an answer: (that of the earlier one that it is nearest to, True), or (a new one, False).

        Args:
            update: the plain update's file.
            near: the sine of the angle below which answers are near.

        Raises:
            HanseError: TRAINING_FAILED for an update whose numbers are not finite, which no sum carries.
        """
        numbers = sketch(update, self._kept(_SECRET, 32))
        require_finite(numbers)

        def do(database: sqlite3.Connection) -> tuple[bytes, bool]:
            rows = database.execute("SELECT tag, numbers FROM sketches ORDER BY id DESC LIMIT ?", (KEPT,)).fetchall()
            others: list[Sketch] = [_read(row[1]) for row in rows]
            at = nearest(numbers, others, near)
            tag = secrets.token_bytes(TAG_BYTES) if at is None else bytes(rows[at][0])
            database.execute("INSERT INTO sketches (tag, numbers) VALUES (?, ?)", (tag, _kept_as(numbers)))
            database.execute("DELETE FROM sketches WHERE id <= (SELECT max(id) FROM sketches) - ?", (KEPT,))
            return tag, at is not None

        return self._database.do(do)

    def fixed(self) -> bytes:
        """The one tag of all answers whose members are fixed."""
        return self._kept(_FIXED, TAG_BYTES)

    def derived(self, purpose: bytes) -> bytes:
        """32 bytes that this home's secret makes for one purpose."""
        info = b"hanse withheld words 1\n" + purpose
        return HKDFExpand(SHA256(), 32, info=info).derive(self._kept(_BLINDING, 32))

    def renew(self) -> None:
        """From now on, answers whose members are fixed may have others than before."""
        self._database.do(lambda database: database.execute("DELETE FROM kept WHERE name = ?", (_FIXED,)))

    def _kept(self, name: str, size: int) -> bytes:
        def do(database: sqlite3.Connection) -> bytes:
            database.execute("INSERT OR IGNORE INTO kept VALUES (?, ?)", (name, secrets.token_bytes(size)))
            return bytes(one(database, "SELECT value FROM kept WHERE name = ?", name)[0])

        return self._database.do(do)


def require_finite(numbers: Sketch) -> None:
    """Keep nothing that no answer can be held against: a hub that had a site keep it would make it blind.

    Raises:
        HanseError: TRAINING_FAILED.
    """
    if not np.isfinite(numbers).all():
        raise HanseError(ErrorCode.TRAINING_FAILED, "update: it has values that are not finite, which no sum can carry")


def _kept_as(numbers: Sketch) -> bytes:
    """The direction alone, in float32, which no length takes out of range."""
    length = float(np.linalg.norm(numbers))
    return (numbers / length if length else numbers).astype("<f4").tobytes()


def _read(kept: bytes) -> Sketch:
    """Of this release, or as earlier ones kept it: in float64, of its length."""
    return np.frombuffer(kept, "<f4" if len(kept) == 4 * NUMBERS else "<f8").astype(np.float64)
