"""Who sends noise to whom in one attempt of a round, and the one key that all of it is bound to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from hanse_fabric.errors import ErrorCode, HanseError, invalid


@dataclass(frozen=True, slots=True)
class ObliviousPlan:
    """One attempt: tuples, masks and coins are made for it and for nothing else.

    Attributes:
        session: names run, step, round and attempt; no two sums share one.
        participants: sorted, each once, at least three.
        count: coordinates of the update.
        steps: the scale of each participant's Laplace noise, in steps of the ring's grid.
        degree: to how many peers each sends noise; None: to all. The same noise for less traffic, of 2 count elements
            for each peer.
        self_term: each also adds a part that only it knows; without, n - 1 parts of n are a little short of Laplace.
    """

    session: str
    participants: tuple[str, ...]
    count: int
    steps: int
    degree: int | None = None
    self_term: bool = True

    def __post_init__(self) -> None:
        if len(self.participants) < 3:
            raise invalid("participants", len(self.participants), "at least 3: of two, each could work out the other's")
        if list(self.participants) != sorted(set(self.participants)):
            raise invalid("participants", ", ".join(self.participants[:5]), "sorted names, each once")
        if self.degree is not None and not 2 <= self.degree < len(self.participants):
            raise invalid("degree", self.degree, f"2 to {len(self.participants) - 1} peers")
        if self.count < 1:
            raise invalid("count", self.count, "one coordinate or more")

    @property
    def parts(self) -> int:
        """How many parts make one participant's Laplace noise.

        Without a self term and with all peers it stays n, as in Mugunthan (2022): the noise is (n - 1)/n of the
        variance.
        """
        return len(self.participants) if self.degree is None else self.degree + self.self_term

    def receivers(self, sender: str) -> tuple[str, ...]:
        """The peers to whom a participant sends noise, sorted."""
        return self._peers(sender, 1)

    def senders(self, receiver: str) -> tuple[str, ...]:
        """The peers from whom a participant gets noise, sorted."""
        return self._peers(receiver, -1)

    def check_session(self, session: str) -> None:
        """Refuse what was made for another attempt.

        Raises:
            HanseError: CONFLICT.
        """
        if session != self.session:
            raise HanseError(
                ErrorCode.CONFLICT, f"noise of session {session}, expected {self.session}: never used twice"
            )

    def _peers(self, name: str, direction: int) -> tuple[str, ...]:
        if name not in self.participants:
            raise invalid("participant", name, f"one of the {len(self.participants)} of session {self.session}")
        if self.degree is None:
            return tuple(other for other in self.participants if other != name)
        ring = _shuffled(self.session, self.participants)
        place = ring.index(name)
        return tuple(sorted(ring[(place + direction * hop) % len(ring)] for hop in range(1, self.degree + 1)))


class Attempts:
    """The sessions that a participant has drawn noise for: each once, ever.

    Args:
        used: those of before, where they are kept.
    """

    def __init__(self, used: Iterable[str] = ()) -> None:
        self._used = set(used)

    def open(self, plan: ObliviousPlan) -> None:
        """Take note of a session before noise is drawn for it.

        Raises:
            HanseError: CONFLICT when there was one of this name.
        """
        if plan.session in self._used:
            raise HanseError(
                ErrorCode.CONFLICT,
                f"session {plan.session}: its noise was drawn before, and is never drawn or used again",
                hint="a new attempt has a new session",
            )
        self._used.add(plan.session)


def _shuffled(session: str, names: tuple[str, ...]) -> list[str]:
    """A circle of all participants that changes with every session, and that everybody can compute."""
    return sorted(names, key=lambda name: hashlib.sha256(f"{session}|{name}".encode()).digest())
