"""What a site remembers of a session, on its disk: a restarted site goes on where it stood, or refuses.

A session's answers are written down before they leave. The same request gets the same bytes again; a different request
for the same session gets no answer. When a session is over its secrets are erased, and the fact that it was held stays.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import ClassVar

from hanse_fabric.durable import space_errors, sync_folder, write_durably
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.base import Message
from hanse_fabric.names import Digest, StepKey
from hanse_fabric.strict_json import LARGE
from hanse_privacy.pairwise.keys import RunKey
from hanse_privacy.pairwise.messages import MaskOrder, Raw, ShareAnswer, ShareRequest, UnmaskAnswer, UnmaskRequest

_KEY, _LIVE, _OVER, _GIVEN = "key", ".session", ".over", ".given"


class SessionState(Message):
    """A session that is under way.

    Attributes:
        request, answer: of SHARE.
        own: seed of the own mask.
        kept: this site's shares of its own two secrets (own seed, wrapping secret).
        order, task: whom it masked with, for which task: for no other.
        asked: digest of what it answers; None: of a hub of release 0.1.0.
        ahead: whether its secrets were shared beside the answer before, when its work was not known; None: no.
    """

    schema_id: ClassVar[str] = "hanse.pairwise_session/2"
    limits = LARGE
    grown: ClassVar = ("hanse.pairwise_session/1", frozenset({"asked", "request.work", "ahead", "order.ahead"}))

    request: ShareRequest
    answer: ShareAnswer
    own: Raw
    kept: Raw
    order: MaskOrder | None = None
    task: str = ""
    asked: Raw | None = None
    ahead: bool | None = None

    @property
    def waits(self) -> bool:
        """Whether it was shared ahead, and nothing was masked in it yet."""
        return bool(self.ahead) and self.order is None


class EndedSession(Message):
    """A session without its secrets: what it takes to say the same again, or to refuse.

    Attributes:
        asked: SHA-256 of the UnmaskRequest that was answered; empty where none was.
        revealed: the answer.
    """

    schema_id: ClassVar[str] = "hanse.pairwise_session_ended/1"
    limits = LARGE

    session: StepKey
    asked: Raw = b""
    revealed: UnmaskAnswer | None = None

    def again(self, asked: UnmaskRequest) -> bytes:
        """The answer to UNMASK once more.

        Raises:
            HanseError: GONE where there was none; CONFLICT where it was to another request.
        """
        if self.revealed is None:
            raise gone(self.session)
        if self.asked != _digest(asked):
            raise conflict(self.session, "other survivors")
        return self.revealed.encode()


class GivenSums(Message):
    """What was contributed to a session's sums: SHA-256 of the masked bytes by the sum's key."""

    schema_id: ClassVar[str] = "hanse.pairwise_sums/1"
    limits = LARGE

    digests: dict[StepKey, Digest] = {}


class RunFolder:
    """The files of one run: this site's key, and its sessions.

    Args:
        folder: of this run, made where there is none.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with space_errors(folder):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def key(self) -> RunKey:
        """The run's key; made at the first time."""
        path = self._folder / _KEY
        if not path.exists():
            write_durably(path, RunKey.create().private_bytes)
        return RunKey(path.read_bytes())

    def ended(self, session: str) -> EndedSession | None:
        """The session, if it is over."""
        path = self._path(session, _OVER)
        return EndedSession.decode(path.read_bytes()) if path.exists() else None

    def find(self, session: str) -> SessionState | None:
        """The session, if it is under way.

        Raises:
            HanseError: GONE when it is over.
        """
        if self._is_over(session):
            raise gone(session)
        path = self._path(session, _LIVE)
        return SessionState.decode(path.read_bytes()) if path.exists() else None

    def require(self, session: str) -> SessionState:
        """The session, which must be under way.

        Raises:
            HanseError: GONE when this site has no secrets of it.
        """
        state = self.find(session)
        if state is None:
            raise gone(session)
        return state

    def store(self, state: SessionState) -> None:
        """Write it down before anything leaves."""
        write_durably(self._path(state.request.session, _LIVE), state.encode())

    def end(self, session: str, asked: UnmaskRequest | None = None, revealed: UnmaskAnswer | None = None) -> None:
        """Erase the session's secrets, and remember that it is over and how it ended."""
        digest = b"" if asked is None else _digest(asked)
        ended = EndedSession(session=session, asked=digest, revealed=revealed)
        write_durably(self._path(session, _OVER), ended.encode())
        self._erase(session)

    def given(self, session: str) -> dict[str, str]:
        """What was contributed to a session's sums, as `GivenSums` has it."""
        path = self._path(session, _GIVEN)
        return dict(GivenSums.decode(path.read_bytes()).digests) if path.exists() else {}

    def store_given(self, session: str, digests: dict[str, str]) -> None:
        """Write it down before it leaves."""
        write_durably(self._path(session, _GIVEN), GivenSums(digests=digests).encode())

    def end_others(self, session: str) -> None:
        """End all other sessions: their sums are made, or never will be. So a site helps to unmask one sum at a time,
        and none of an attempt that was given up."""
        for other in self.live():
            if other != session:
                self.end(other)

    def end_answered(self, session: str) -> None:
        """End all other sessions but one that was shared ahead, and waits: whoever masks in one session helps to unmask
        no earlier one any more, nor masks in one that was opened before."""
        for other in self.live():
            if other != session and ((state := self.find(other)) is None or not state.waits):
                self.end(other)

    def end_waiting(self, session: str) -> None:
        """End all other sessions that were shared ahead and wait: there is one at a time."""
        for other in self.live():
            if other != session and (state := self.find(other)) is not None and state.waits:
                self.end(other)

    def live(self) -> list[str]:
        """The sessions under way, newest first."""

        def age(path: Path) -> int:
            return path.stat().st_mtime_ns

        paths = sorted(self._folder.glob(f"*{_LIVE}"), key=age, reverse=True)
        sessions = [path.name.removesuffix(_LIVE) for path in paths]
        return [session for session in sessions if not self._is_over(session)]

    def end_old(self, kept: int) -> None:
        """End all but the newest sessions."""
        for session in self.live()[kept:]:
            self.end(session)

    def remove(self) -> None:
        """Erase the run's key and all its sessions."""
        for path in self._folder.iterdir():
            path.unlink(missing_ok=True)
        self._folder.rmdir()

    def _is_over(self, session: str) -> bool:
        """Whether the session is over. Then it has no secrets: a site that was killed between writing the one and
        erasing the other erases them now."""
        if not self._path(session, _OVER).exists():
            return False
        if self._path(session, _LIVE).exists():
            self._erase(session)
        return True

    def _erase(self, session: str) -> None:
        self._path(session, _GIVEN).unlink(missing_ok=True)
        self._path(session, _LIVE).unlink(missing_ok=True)
        sync_folder(self._folder)

    def _path(self, session: str, suffix: str) -> Path:
        return self._folder / f"{session}{suffix}"


def gone(session: str) -> HanseError:
    """This site lacks, or has erased, a session's secrets."""
    return HanseError(
        ErrorCode.GONE,
        f"session {session}: this site has no secrets of it (any more)",
        hint="the next attempt at the step begins a new session",
    )


def conflict(session: str, what: str) -> HanseError:
    """A session is asked for something else than what it was asked for before."""
    return HanseError(
        ErrorCode.CONFLICT,
        f"session {session}: {what}: it was answered already, and is answered once",
        hint="the hub begins a new session for another attempt",
    )


def _digest(asked: UnmaskRequest) -> bytes:
    return hashlib.sha256(asked.canonical()).digest()
