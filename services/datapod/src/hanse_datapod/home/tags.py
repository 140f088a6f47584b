"""Tags: by which a site says, to those who sum masks, that an answer is near to an earlier one, and nothing else.

What the site keeps of its newest answers is the direction of 64 numbers of each, under a secret of its own
(`hanse_privacy.works.near`). Nothing of a week is forgotten: a hub that asks for more answers than are kept, to make
the site forget, is answered no more. Loads numpy.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from numpy.typing import NDArray

from hanse_datapod.home.database import Database, one
from hanse_datapod.home.work_cuts import FIXED, LASTING, OF_SUMS, SKETCHES
from hanse_datapod.home.works import FILE
from hanse_datapod.policy.limits import DAY_S
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.works.near import NUMBERS, Sketch, nearest, sketch

KEPT = 100_000
"""Sketches: 26 MB. So many answers in training may be made within `WEEK_S`; the oldest of before are forgotten."""
WEEK_S = 7 * DAY_S
TAG_BYTES = 16
_SECRET, _BLINDING = "secret", "blinding"
_KEEP = (
    "INSERT INTO kept VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value "
    "WHERE value != excluded.value"  # so that nobody waits for the disk where it is known
)
Let = Callable[[sqlite3.Connection, bytes], None]


class Tags:
    """The tags of one home. Methods block, and any thread may call them."""

    def __init__(self, home: Path) -> None:
        self._database = Database(home / FILE, SKETCHES)
        self._ids: NDArray[np.int64] = np.zeros(0, np.int64)
        self._tags: list[bytes] = []
        self._directions: NDArray[np.float32] = np.zeros((0, NUMBERS), np.float32)

    def close(self) -> None:
        """Give the file back; the next change opens it again."""
        self._database.close()

    def of(
        self, update: Path, near: float, *, at: float = 0.0, let: Let = lambda _database, _tag: None
    ) -> tuple[bytes, bool]:  # fmt: skip
        """The tag of an answer: (that of the earlier one that it is nearest to, True), or (a new one, False).

        Args:
            update: the plain update's file.
            near: the sine of the angle below which answers are near.
            at: Unix time.
            let: raises where the answer may not be near to those of a tag; then nothing is kept of it.

        Raises:
            HanseError: TRAINING_FAILED for an update whose numbers are not finite, which no sum carries; POLICY where
                more answers of the last days would have to be remembered than are; what `let` raises.
        """
        numbers = sketch(update, self._kept(_SECRET, 32))
        require_finite(numbers)

        def do(database: sqlite3.Connection) -> tuple[bytes, bool]:
            _require_room(database, at)
            self._catch_up(database)
            found = nearest(numbers, self._directions, near)
            tag = secrets.token_bytes(TAG_BYTES) if found is None else self._tags[found]
            if found is not None:
                let(database, tag)
            row = database.execute("INSERT INTO sketches (tag, numbers) VALUES (?, ?)", (tag, _kept_as(numbers)))
            database.execute("INSERT INTO sketched VALUES (?, ?)", (row.lastrowid, at))
            for table in ("sketches", "sketched"):
                database.execute(f"DELETE FROM {table} WHERE id <= ?", ((row.lastrowid or 0) - KEPT,))  # noqa: S608
            return tag, found is not None

        return self._database.do(do)

    def _catch_up(self, database: sqlite3.Connection) -> None:
        """Read what was kept since, by other processes, too, and drop what is forgotten."""
        oldest = one(database, "SELECT min(id) FROM sketches")[0] or 0
        gone, last = int(np.searchsorted(self._ids, oldest)), int(self._ids[-1]) if self._ids.size else 0
        rows = database.execute(
            "SELECT id, tag, numbers FROM sketches WHERE id > ? ORDER BY id", (last,)
        ).fetchall()  # fmt: skip
        if gone or rows:
            self._ids = np.concatenate([self._ids[gone:], np.array([row[0] for row in rows], np.int64)])
            self._tags = [*self._tags[gone:], *(bytes(row[1]) for row in rows)]
            new = [_read(row[2]) for row in rows]
            self._directions = np.concatenate([self._directions[gone:], np.array(new, np.float32).reshape(-1, NUMBERS)])

    def fixed(self) -> bytes:
        """The one tag of all answers whose members are fixed."""
        return self._kept(FIXED, TAG_BYTES)

    def of_sums(self, project: str) -> bytes:
        """The one tag of all trainings with sums in the middle of a step, for a project; another one after `renew`."""
        tag = self.derived(b"the tag of sums within a step\n" + self.fixed() + project.encode())[:TAG_BYTES]
        self._database.do(lambda database: database.execute(_KEEP, (OF_SUMS + project, tag)))
        return tag

    def of_columns(self, work: bytes) -> bytes:
        """The one tag of all preparations of some columns.

        Args:
            work: the digest of the one without noise.
        """
        return self.derived(b"the tag of a preparation\n" + work)[:TAG_BYTES]

    def derived(self, purpose: bytes) -> bytes:
        """32 bytes that this home's secret makes for one purpose."""
        info = b"hanse withheld words 1\n" + purpose
        return HKDFExpand(SHA256(), 32, info=info).derive(self._kept(_BLINDING, 32))

    def renew(self) -> None:
        """From now on, answers whose members are fixed, and sums within a step, may have others than before."""
        self._database.do(lambda database: database.execute(f"DELETE FROM kept WHERE value IN ({LASTING})"))  # noqa: S608

    def _kept(self, name: str, size: int) -> bytes:
        def do(database: sqlite3.Connection) -> bytes:
            database.execute("INSERT OR IGNORE INTO kept VALUES (?, ?)", (name, secrets.token_bytes(size)))
            return bytes(one(database, "SELECT value FROM kept WHERE name = ?", name)[0])

        return self._database.do(do)


def _require_room(database: sqlite3.Connection, at: float) -> None:
    """Forget nothing of the last days, rather than answer: what is forgotten could be asked for again without a site.

    Raises:
        HanseError: POLICY.
    """
    first = one(database, "SELECT min(id) FROM sketched WHERE at >= ?", at - WEEK_S)[0]
    if first is not None and one(database, "SELECT max(id) FROM sketched")[0] - first + 1 >= KEPT:
        raise HanseError(
            ErrorCode.POLICY, f"the masked sum is refused: {KEPT} answers of training were made within a week",
            hint="more are not remembered, and what is forgotten could be asked for again without one site; wait",
        )  # fmt: skip


def require_finite(numbers: Sketch) -> None:
    """Keep nothing that no answer can be held against: a hub that had a site keep it would make it blind.

    Raises:
        HanseError: TRAINING_FAILED.
    """
    if not np.isfinite(numbers).all():
        raise HanseError(ErrorCode.TRAINING_FAILED, "update: it has values that are not finite, which no sum can carry")


def _kept_as(numbers: Sketch) -> bytes:
    return _direction(numbers).tobytes()


def _read(kept: bytes) -> NDArray[np.float32]:
    """Of this release, or as earlier ones kept it: in float64, of its length."""
    return _direction(np.frombuffer(kept, "<f4" if len(kept) == 4 * NUMBERS else "<f8").astype(np.float64))


def _direction(numbers: Sketch) -> NDArray[np.float32]:
    """The direction alone, in float32, which no length takes out of range."""
    length = float(np.linalg.norm(numbers))
    return (numbers / length if length else numbers).astype("<f4")
