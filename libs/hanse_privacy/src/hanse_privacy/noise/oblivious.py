"""Oblivious noise: every participant adds noise that others drew and that nobody can read.

This is Protocol 1 of Mugunthan (2022) in one ring, with fresh tuples for every attempt; the shuffler is our repair.

Sender i draws for each receiver j two parts d0, d1 of a Laplace variable and one mask s, and sends (s + d0, s + d1).
`oblivious`: receiver j tosses a coin for each of them and coordinate, and adds the one; the sender subtracts s.
`oblivious-shuffled`: the shuffler tosses the coins, and gives each receiver one vector, the sum of what it chose and a
mask rho; the sum of all rho goes to the server. All of it in Z_2^64, of which Z_2^32 is the lower half. So
    sum of uploads [- sum of rho] = sum of encoded updates + sum of the chosen parts,
bit for bit. The pairwise or other masks of the uploads are not made here.

What it is worth: see `hanse_privacy.noise.labels`. Receivers and senders that pool their views defeat `oblivious`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_privacy.noise.exact import polya_difference
from hanse_privacy.noise.oblivious_plan import Attempts, ObliviousPlan
from hanse_privacy.noise.source import NoiseSource

Elements = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Tuples:
    """What one sender made for its receivers.

    Attributes:
        receivers: in the order of the rows.
        first, second: (receivers, count): s + d0, s + d1.
    """

    session: str
    sender: str
    receivers: tuple[str, ...]
    first: Elements
    second: Elements


@dataclass(frozen=True, slots=True)
class Relayed:
    """What the shuffler gives one receiver: the sum of all that it chose from its senders, and a mask: (count,)."""

    session: str
    receiver: str
    values: Elements


class Sender:
    """Draws one participant's parts for its peers, and the part that it keeps. One object for one attempt.

    Attributes:
        noise: (2, receivers, count) d0 and d1; masks: (receivers, count) s; own: (count,), the self term. These are the
            sender's secrets.

    Raises:
        HanseError: CONFLICT for a session that this participant has drawn for before.
    """

    def __init__(self, plan: ObliviousPlan, name: str, source: NoiseSource, attempts: Attempts) -> None:
        attempts.open(plan)
        self._plan, self._name = plan, name
        self.receivers = plan.receivers(name)
        shape = (2, len(self.receivers), plan.count)
        drawn = polya_difference(plan.steps, plan.parts, int(np.prod(shape)), source)
        self.noise = drawn.reshape(shape).view(np.uint64)
        self.masks = source.words(shape[1] * shape[2]).reshape(shape[1:]).copy()
        own = (
            polya_difference(plan.steps, plan.parts, plan.count, source)
            if plan.self_term
            else np.zeros(plan.count, int)
        )
        self.own = own.view(np.uint64)

    def tuples(self) -> Tuples:
        """What goes to the peers, or to the shuffler."""
        first, second = self.noise + self.masks
        return Tuples(self._plan.session, self._name, self.receivers, first, second)

    def contribution(self) -> Elements:
        """What the sender adds to its upload: its own part, less all its masks: (count,)."""
        total: Elements = self.own - self.masks.sum(axis=0, dtype=np.uint64)
        return total


class Receiver:
    """Chooses one of each two parts that it gets, by coins of its own for each sender and coordinate.

    Attributes:
        coins: by sender, (count,): whether the second was chosen. The receiver's secret.
    """

    def __init__(self, plan: ObliviousPlan, name: str, source: NoiseSource) -> None:
        self._plan, self._name, self._source = plan, name, source
        self._senders = frozenset(plan.senders(name))
        self._sum = np.zeros(plan.count, dtype=np.uint64)
        self.coins: dict[str, NDArray[np.bool_]] = {}

    def take(self, session: str, sender: str, first: Elements, second: Elements) -> None:
        """Add one of the two, coordinate by coordinate.

        Args:
            first, second: (count,).

        Raises:
            HanseError: CONFLICT for another session's or a sender's second tuple; INVALID_INPUT for a sender that is
                none, or another shape.
        """
        _check_tuple(self._plan, session, sender, sender in self._senders, sender in self.coins, first, second)
        coins = self._source.bits(self._plan.count)
        self.coins[sender] = coins
        self._sum += np.where(coins, second, first)

    def take_all(self, session: str, senders: tuple[str, ...], first: Elements, second: Elements) -> None:
        """The same for many senders at once: as fast for a thousand of one coordinate.

        Args:
            first, second: (senders, count).

        Raises:
            HanseError: as `take`.
        """
        known = self._senders.issuperset(senders) and len(set(senders)) == len(senders)
        again = not self.coins.keys().isdisjoint(senders)
        shape = (len(senders), self._plan.count)
        _check_tuple(self._plan, session, f"{len(senders)} senders", known, again, first, second, shape)
        coins = self._source.bits(first.size).reshape(shape)
        self.coins.update(zip(senders, coins, strict=True))
        self._sum += np.where(coins, second, first).sum(axis=0, dtype=np.uint64)

    def chosen(self) -> Elements:
        """The sum of what was chosen, which the receiver adds to its upload: (count,).

        Raises:
            HanseError: QUORUM while a sender's tuple is missing: without it the masks would not cancel.
        """
        _check_complete(self._senders, self.coins, f"{self._name} of session {self._plan.session}")
        return self._sum


class Shuffler:
    """Tosses the coins in the receivers' stead, and masks what it gives them. Not to collude with the participants.

    Attributes:
        coins: by sender, (receivers, count). The shuffler's secret, with its masks.
    """

    def __init__(self, plan: ObliviousPlan, source: NoiseSource) -> None:
        self._plan, self._source = plan, source
        self._sums = {name: np.zeros(plan.count, dtype=np.uint64) for name in plan.participants}
        self.masks = {name: source.words(plan.count).copy() for name in plan.participants}
        self.coins: dict[str, NDArray[np.bool_]] = {}

    def take(self, tuples: Tuples) -> None:
        """Choose from what one sender made for its receivers.

        Raises:
            HanseError: as `Receiver.take`; INVALID_INPUT for other receivers than the plan's.
        """
        sender = tuples.sender
        known, again = sender in self._plan.participants, sender in self.coins
        expected = self._plan.receivers(sender) if known else ()
        shape = (len(expected), self._plan.count)
        _check_tuple(self._plan, tuples.session, sender, known, again, tuples.first, tuples.second, shape)
        if tuples.receivers != expected:
            raise invalid(
                f"tuples of {tuples.sender}", f"{len(tuples.receivers)} receivers", "the plan's, in its order"
            )
        coins = self._source.bits(shape[0] * shape[1]).reshape(shape)
        self.coins[tuples.sender] = coins
        for receiver, chosen in zip(expected, np.where(coins, tuples.second, tuples.first), strict=True):
            self._sums[receiver] += chosen

    def relay(self, receiver: str) -> Relayed:
        """What one receiver adds to its upload; uniform to everybody who has not the masks.

        Raises:
            HanseError: QUORUM while a sender's tuples are missing.
        """
        _check_complete(frozenset(self._plan.participants), self.coins, f"session {self._plan.session}")
        return Relayed(self._plan.session, receiver, self._sums[receiver] + self.masks[receiver])

    def compensation(self) -> Elements:
        """The sum of the masks, which the server subtracts: (count,)."""
        summed: Elements = np.sum(list(self.masks.values()), axis=0, dtype=np.uint64)
        return summed


def upload(encoded: Elements, sender: Sender, received: Elements) -> Elements:
    """One participant's ring elements with its noise, before they are masked: (count,).

    Args:
        encoded: its update in the ring.
        received: `Receiver.chosen()`, or `Relayed.values`.
    """
    made: Elements = encoded + sender.contribution() + received
    return made


def total(uploads: Iterable[Elements], compensation: Elements | None = None) -> Elements:
    """The server's sum: encoded updates and the chosen noise, and nothing else: (count,)."""
    summed: Elements = np.sum(list(uploads), axis=0, dtype=np.uint64)
    if compensation is not None:
        summed = summed - compensation
    return summed


def _check_tuple(
    plan: ObliviousPlan, session: str, sender: str, known: bool, again: bool, first: Elements, second: Elements,
    shape: tuple[int, ...] | None = None,
) -> None:  # fmt: skip
    plan.check_session(session)
    if not known:
        raise invalid("sender", sender, f"one who sends here in session {session}")
    if again:
        raise HanseError(ErrorCode.CONFLICT, f"sender {sender}: a second tuple in session {session}, expected one")
    expected = shape or (plan.count,)
    for name, values in (("first", first), ("second", second)):
        if values.shape != expected or values.dtype != np.uint64:
            raise invalid(f"tuple of {sender}: {name}", f"{values.dtype} {values.shape}", f"uint64 {expected}")


def _check_complete(expected: frozenset[str], have: Iterable[str], where: str) -> None:
    missing = sorted(expected - set(have))
    if missing:
        raise HanseError(
            ErrorCode.QUORUM,
            f"{where}: no noise from {', '.join(missing[:5])}{', ...' if len(missing) > 5 else ''}",
            hint="the attempt is given up; the next one is among those who are left, with new noise",
        )
