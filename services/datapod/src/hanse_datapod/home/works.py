"""The site's memory of what it answered in masked sums: which works, to which requests, with which bytes, among whom.

It is a database in the home folder, or in one that homes with the same data share, never compacted, and on the disk
before what it remembers leaves. Beyond its limit the oldest works' answers are forgotten; the works' digests and
the answers' tags stay, and such a work, or one that is near to it, is refused. Of answers whose members are the same
whatever is asked, what the next one is held against is never forgotten.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hanse_datapod.home import work_sets
from hanse_datapod.home.database import Database, one, used_bytes
from hanse_datapod.home.height import HEIGHT, NUMBER, counting
from hanse_datapod.home.work_cuts import CUTS, LASTING, check_cut, forget_cuts, keep_cut
from hanse_datapod.home.work_people import check_changed, check_studied, keep_people
from hanse_datapod.worker.port import DataState
from hanse_fabric.errors import ErrorCode, HanseError, unfit
from hanse_privacy.works.chain import Members
from hanse_privacy.works.pairwise import Past, UnmaskingSession

FILE = "works"
LIMIT = 256 << 20
_FORGOTTEN_AT_ONCE = 64
TABLES = f"""{HEIGHT}{CUTS}
CREATE TABLE IF NOT EXISTS works (work BLOB PRIMARY KEY, project TEXT NOT NULL, compensator BLOB NOT NULL,
    used INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS works_by_use ON works (used);
CREATE TABLE IF NOT EXISTS answers (id INTEGER PRIMARY KEY AUTOINCREMENT, session BLOB NOT NULL UNIQUE,
    work BLOB NOT NULL, tag BLOB NOT NULL, request BLOB NOT NULL, answer BLOB NOT NULL, data BLOB NOT NULL,
    at REAL NOT NULL, left INTEGER NOT NULL, dead INTEGER NOT NULL DEFAULT 0, members BLOB, threshold INTEGER,
    gap INTEGER, colluding INTEGER,
    revealed BLOB);
CREATE INDEX IF NOT EXISTS answers_of_works ON answers (work);
CREATE INDEX IF NOT EXISTS answers_of_tags ON answers (tag);
CREATE TABLE IF NOT EXISTS people (data BLOB PRIMARY KEY, sketch BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS studied (ids BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS forgotten (tag BLOB PRIMARY KEY) WITHOUT ROWID;
{counting("answers")}"""


_OF_WORK = "SELECT project, compensator FROM works WHERE work = ?"
_OF_TAG = (
    "SELECT DISTINCT project, compensator FROM answers JOIN works ON works.work = answers.work WHERE tag = ? AND "
    "tag != x''"
)
_FORGET_TAGS = (
    f"INSERT OR IGNORE INTO forgotten SELECT tag FROM answers WHERE work = ? AND tag != x'' AND tag NOT IN ({LASTING})"  # noqa: S608
)
# To forget the one tag of all answers whose members are the same would be to refuse them all. So of these the newest of
# every set stays, of all data: the next is held against what it was before. Who has forgotten an answer does not help
# to unmask it any more.
_GOES = (
    f"(tag NOT IN ({LASTING}) OR EXISTS (SELECT 1 FROM answers AS newer "  # noqa: S608
    "WHERE newer.tag = answers.tag AND newer.id > answers.id AND newer.data = answers.data "
    "AND newer.members IS answers.members AND newer.threshold IS answers.threshold AND newer.gap IS answers.gap "
    "AND newer.colluding IS answers.colluding AND newer.revealed IS answers.revealed))"
)
_OLDEST = (
    f"SELECT work FROM works WHERE EXISTS (SELECT 1 FROM answers WHERE answers.work = works.work AND {_GOES}) "  # noqa: S608
    "ORDER BY used LIMIT ?"
)
_FORGET = f"DELETE FROM answers WHERE work = ? AND {_GOES}"  # noqa: S608


@dataclass(frozen=True, slots=True)
class MaskedWork:
    """What a masked task asks of the site.

    Attributes:
        run, session: of the sum.
        work, request, cut: the digests W and R, and of what answers are cut to (`hanse_learning.binding`).
        project, compensator: for whom; the compensator's key, empty without one.
        grids: to which numbers are rounded: fraction bits, a byte each; none: they are whole.
    """

    run: str
    session: str
    work: bytes
    request: bytes
    project: str
    compensator: bytes
    cut: bytes
    grids: bytes = b""

    @property
    def key(self) -> bytes:
        return session_key(self.run, self.session)


def near_before(database: sqlite3.Connection, asked: MaskedWork, near: bytes, since: float) -> int:
    """How many answers since a Unix time one is near to.

    Args:
        near: their tag.

    Raises:
        HanseError: POLICY where they were cut to other limits.
    """
    check_cut(database, near, asked.cut, asked.grids)
    return int(one(database, "SELECT count(*) FROM answers WHERE tag = ? AND at >= ?", near, since)[0])


class Works:
    """The database in a folder. Methods block, and any thread may call them; processes take turns.

    Args:
        folder: the home, or what homes with the same data share.
        limit: its bytes.
        few: a work is not done again where the data differ by fewer people than so many.
        reached: is told how far the memory has come, once what it remembers is on the disk.
    """

    def __init__(
        self, folder: Path, *, limit: int = LIMIT, few: int = 10, reached: Callable[[int], None] = lambda _: None
    ) -> None:  # fmt: skip
        self._database, self._limit, self._few, self._reached = Database(folder / FILE, TABLES), limit, few, reached

    def close(self) -> None:
        """Give the file back; the next change opens it again."""
        self._database.close()

    def check(self, asked: MaskedWork) -> None:
        """Whether the work may be done for this request.

        Raises:
            HanseError: CONFLICT for another request of the session, another project's or compensator's work; POLICY
                where it was cut to other limits before; GONE where the session's answer has left already, or the work
                is forgotten.
        """
        self._database.do(lambda database: self._check(database, asked))

    def claim(
        self, asked: MaskedWork, answer: bytes, data: DataState, *, tag: bytes = b"", near: bytes = b"",
        among: UnmaskingSession | None = None, at: float = 0.0,
    ) -> None:  # fmt: skip
        """Remember an answer that was made, and may leave after `leave`.

        Args:
            answer: SHA-256 of its bytes.
            data: that it was made of.
            tag: of answers by whose sets it is summed.
            near: of answers that it is near to; another tag where members are fixed.
            among: with whom its masks are pairwise.
            at: Unix time.

        Raises:
            HanseError: as `check`, `near_before`, and `check_people` for works that it is near to, too; CONFLICT
                by the rules of `Past`, or where some of what it is near to is forgotten; NO_SPACE where nothing more
                can be remembered.
        """

        def do(database: sqlite3.Connection) -> None:
            self._check(database, asked)
            check_cut(database, near, asked.cut, asked.grids)
            _check_known(database, tag)
            _check_owners(database, _OF_TAG, tag, asked)
            check_changed(database, asked.work, tag, data, self._few)
            if among is not None:
                work_sets.past(database, (asked.work, tag), without=asked.key).check(among)
                work_sets.near_past(database, asked.work, tag).check_near(among)
                work_sets.end_others(database, asked.work, (tag, among), but=asked.key)
            self._make_room(database)
            self._insert(database, asked, answer, data, tag, among, at)
            keep_cut(database, near, asked.cut, asked.grids)

        self._change(do)

    def check_people(self, work: bytes, data: DataState, differ: int = 0, *, tag: bytes = b"") -> None:
        """Whether a work may be done on these data.

        Args:
            tag: of answers that it is near to, as if they were the same work.
            differ: a study's people must not differ from an earlier study's by fewer than so many.

        Raises:
            HanseError: POLICY where they differ by few people from those that it was done on before, or from an earlier
                study's. By how many is not told.
        """

        def do(database: sqlite3.Connection) -> None:
            check_changed(database, work, tag, data, self._few)
            check_studied(database, data, differ)

        self._database.do(do)

    def begin(self, asked: MaskedWork, data: DataState, among: UnmaskingSession, *, tag: bytes = b"") -> None:
        """Remember that sums in the middle of the work begin, which need no unmasking: it is as if they were unmasked.

        Args:
            data: that are known already.
            tag: of all works, where their members are fixed; else it is not known yet.

        Raises:
            HanseError: as `claim`.
        """

        def do(database: sqlite3.Connection) -> None:
            self._check(database, asked)
            _check_owners(database, _OF_TAG, tag, asked)
            check_changed(database, asked.work, tag, data, self._few)
            work_sets.past(database, (asked.work, tag), without=asked.key).check(among)
            self._make_room(database)
            self._insert(database, asked, b"", data, tag, among, 0.0)
            work_sets.keep_revealed(database, asked.key, among.members)

        self._change(do)

    def found(self, asked: MaskedWork, data: DataState, *, tag: bytes = b"") -> None:
        """Remember of which data sums in the middle of a work are made that were begun.

        Args:
            tag: as of `begin`.

        Raises:
            HanseError: POLICY where they differ by few people from those that such sums were made of before.
        """

        def do(database: sqlite3.Connection) -> None:
            check_changed(database, asked.work, tag, data, self._few)
            keep_people(database, data)
            database.execute("UPDATE answers SET data = ? WHERE session = ?", (data.fingerprint.encode(), asked.key))

        self._change(do)

    def fix_answer(self, asked: MaskedWork, answer: bytes) -> None:
        """The answer is about to leave: the session has no other one, ever. One of before this memory is remembered.

        Raises:
            HanseError: GONE where the session has another answer.
        """

        def do(database: sqlite3.Connection) -> None:
            row = one(database, "SELECT answer, left FROM answers WHERE session = ?", asked.key)
            if row is None:
                self._insert(database, asked, answer, DataState(), b"", None, 0.0)
            elif row[0] != answer:
                raise gone(asked.session)
            if row is None or not row[1]:
                database.execute("UPDATE answers SET left = 1 WHERE session = ?", (asked.key,))

        self._change(do)

    def past(self, *keys: bytes) -> Past:
        """What the site did for a work, and for answers that are near, with pairwise masks.

        Args:
            keys: the work's digest, tags; empty ones are none.

        Raises:
            HanseError: GONE where the work is forgotten.
        """
        return self._database.do(lambda database: work_sets.past(database, keys))

    def share(self, work: bytes, among: UnmaskingSession) -> None:
        """Remember that secrets are about to be shared for another sum of a work: those before it, of whichever run,
        are not unmasked any more.

        Raises:
            HanseError: CONFLICT by the rules of `Past`.
        """

        def do(database: sqlite3.Connection) -> None:
            work_sets.past(database, (work,)).check(among)
            work_sets.end_others(database, work)

        self._change(do)

    def reveal(self, run: str, session: str, among: UnmaskingSession, survivors: Members) -> None:
        """Remember that the site is about to help to unmask a session's sum of these.

        Raises:
            HanseError: CONFLICT by the rules of `Past`, or where the session was unmasked for others; GONE where no
                answer of the session has left, or the work went on in another one.
        """

        def do(database: sqlite3.Connection) -> None:
            key = session_key(run, session)
            row = database.execute(
                "SELECT work, tag FROM answers WHERE session = ? AND left = 1 AND dead = 0", (key,)
            ).fetchone()
            if row is None:
                raise gone(session)
            _check_known(database, row[1])
            work_sets.past(database, row, without=key).check_survivors(among, survivors)
            work_sets.keep_revealed(database, key, survivors)

        self._change(do)

    def _change(self, do: Callable[[sqlite3.Connection], None]) -> None:
        def counted(database: sqlite3.Connection) -> int:
            do(database)
            return int(one(database, NUMBER)[0])

        self._reached(self._database.do(counted))

    def _check(self, database: sqlite3.Connection, asked: MaskedWork) -> None:
        row = database.execute("SELECT request, left FROM answers WHERE session = ?", (asked.key,)).fetchone()
        if row is not None:
            if row[0] != asked.request:
                raise HanseError(
                    ErrorCode.CONFLICT,
                    f"session {asked.session} of run {asked.run}: this site has answered another request in it",
                    hint="a session's masks serve one request; a step that is redone has a new session",
                )
            if row[1]:
                raise gone(asked.session)
        check_cut(database, asked.work, asked.cut, asked.grids)
        if not _check_owners(database, _OF_WORK, asked.work, asked):
            return
        if one(database, "SELECT 1 FROM answers WHERE work = ?", asked.work) is None:
            raise _forgotten()

    def _insert(
        self, database: sqlite3.Connection, asked: MaskedWork, answer: bytes, data: DataState, tag: bytes,
        among: UnmaskingSession | None, at: float,
    ) -> None:  # fmt: skip
        now = one(database, "SELECT coalesce(max(id), 0) + 1 FROM answers")[0]
        keep_people(database, data)
        keep_cut(database, asked.work, asked.cut, asked.grids)
        database.execute(
            "INSERT INTO works VALUES (?, ?, ?, ?) ON CONFLICT (work) DO UPDATE SET used = excluded.used",
            (asked.work, asked.project, asked.compensator, now),
        )
        database.execute(
            "INSERT INTO answers (session, work, tag, request, answer, data, at, left) VALUES (?, ?, ?, ?, ?, ?, ?, 0) "
            "ON CONFLICT (session) DO UPDATE SET tag = excluded.tag, answer = excluded.answer, at = excluded.at, "
            # Where sums are begun again, the data that they were made of are not known yet, and those of before stay.
            "data = CASE WHEN excluded.data = x'' THEN data ELSE excluded.data END",
            (asked.key, asked.work, tag, asked.request, answer, data.fingerprint.encode(), at),
        )
        if among is not None:
            work_sets.keep_among(database, asked.key, among)

    def _make_room(self, database: sqlite3.Connection) -> None:
        while used_bytes(database) > self._limit:
            oldest = database.execute(_OLDEST, (_FORGOTTEN_AT_ONCE,)).fetchall()
            if not oldest:
                raise HanseError(
                    ErrorCode.NO_SPACE, f"this site's memory of masked work is full ({self._limit >> 20} MiB)",
                    hint="it takes part in no new masked sum; its administrator enrols it anew",
                )  # fmt: skip
            database.executemany(_FORGET_TAGS, oldest)
            database.executemany(_FORGET, oldest)
            database.execute("DELETE FROM people WHERE data NOT IN (SELECT data FROM answers)")
            forget_cuts(database)


def _check_owners(database: sqlite3.Connection, query: str, key: bytes, asked: MaskedWork) -> bool:
    """Whether something like it was done before; for nobody else, then.

    Args:
        query: for whom it was done, by the key.

    Raises:
        HanseError: CONFLICT where it was for another project, or with another compensator or none.
    """
    owners = database.execute(query, (key,)).fetchall()
    for project, compensator in owners:
        if (project, compensator) != (asked.project, asked.compensator):
            # Whose it was is no other project's to know.
            raise unfit(
                "this work was done for another project, or with another compensator: nobody else gets a sum of it",
                f"project {project}", code=ErrorCode.CONFLICT,
                hint="two sums that nobody holds against each other could tell this site's part",
            )  # fmt: skip
    return bool(owners)


def _check_known(database: sqlite3.Connection, tag: bytes) -> None:
    """Whether all answers of a tag are remembered: a set of sites is held against all that there were.

    Raises:
        HanseError: CONFLICT where one of them was forgotten.
    """
    if one(database, "SELECT 1 FROM forgotten WHERE tag = ?", tag) is not None:
        raise HanseError(
            ErrorCode.CONFLICT,
            "a work that is near to this was done so long ago that with whom is forgotten: this one is not done",
            hint="change what is asked",
        )


def session_key(run: str, session: str) -> bytes:
    """16 bytes for a session of a run."""
    return hashlib.sha256(f"{run}\x1f{session}".encode()).digest()[:16]


def gone(session: str) -> HanseError:
    """The session's answer has left, and its bytes are not here any more."""
    return HanseError(
        ErrorCode.GONE,
        f"session {session}: this site has answered it, and does not have the bytes of the answer any more",
        hint="an answer is made once, for its masks serve once; the step is done again in a new session",
    )


def _forgotten() -> HanseError:
    return HanseError(
        ErrorCode.GONE, "this work was done so long ago that with whom is forgotten: it is not done again",
        hint="change what is asked",
    )  # fmt: skip
