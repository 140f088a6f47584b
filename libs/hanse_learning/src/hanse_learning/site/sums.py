"""Sums over all participants in the middle of local training: what the trainer sees of the `exchange` verb.

The deployed worker's sums go over the bus; `Alone` and `Meeting` are for one site by itself and for several in one
process, each in a thread of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError, invalid

Floats = NDArray[np.float64]
_PART = 12_288
"""Numbers in one sum at most (`hanse_fabric.messages.exchange.EXCHANGE_LIMIT`)."""


class Sums(Protocol):
    """Every participant calls `sum` with the same keys in the same order; each call returns when all have."""

    def sum(self, key: str, values: Floats) -> Floats:
        """The sum of all participants' arrays (n,) for `key`, the same bits for all of them.

        Raises:
            HanseError: QUORUM where not all have contributed in time.
        """

    def end(self) -> None:
        """This participant needs no more sums."""


class Alone:
    """The sums of one site by itself: each is what the site gives."""

    def sum(self, key: str, values: Floats) -> Floats:  # noqa: ARG002 - the protocol's
        """See `Sums`."""
        return values

    def end(self) -> None:
        """See `Sums`."""


@dataclass(slots=True)
class CountingSums:
    """Counts what goes through: rounds of sums, and numbers that one participant has contributed in them.

    Attributes:
        rounds: sums that were made.
        values: numbers in them, of one participant.
    """

    inner: Sums
    rounds: int = 0
    values: int = 0

    def sum(self, key: str, values: Floats) -> Floats:
        """See `Sums`; arrays that are larger than one sum may be are summed in parts."""
        if not np.isfinite(values).all():
            raise HanseError(
                ErrorCode.TRAINING_FAILED,
                f"training diverged: the batch's statistics ({key}) are not finite",
                hint="lower train.optimizer.lr, set train.clip_norm, or scale the features",
            )
        self.values += len(values)
        made = []
        for part, begin in enumerate(range(0, len(values), _PART)):
            self.rounds += 1
            made.append(self.inner.sum(f"{key}-{part}" if part else key, values[begin : begin + _PART]))
        return np.concatenate(made)

    def end(self) -> None:
        """See `Sums`."""
        self.inner.end()


@dataclass(slots=True)
class Meeting:
    """Several sites in one process. Each has a thread and calls `of(its name)`.

    Sums are made in the order of the names, as the aggregators make them: the same bits whoever came first.
    """

    names: Sequence[str]
    patience: float = 60.0
    _open: dict[str, dict[str, Floats]] = field(default_factory=dict)
    _made: dict[str, Floats] = field(default_factory=dict)
    _news: threading.Condition = field(default_factory=threading.Condition)
    _left: bool = False

    def of(self, name: str) -> Sums:
        """The sums as this participant sees them."""
        if name not in self.names:
            raise invalid("participant", name, "one of " + ", ".join(self.names))
        return _Seat(self, name)

    def withdraw(self) -> None:
        """Somebody is not coming any more: all who wait for a sum are told so."""
        with self._news:
            self._left = True
            self._news.notify_all()

    def give(self, name: str, key: str, values: Floats) -> Floats:
        """Contribute, and wait for the others."""
        with self._news:
            given = self._open.setdefault(key, {})
            given.setdefault(name, values.astype(np.float64))
            if len(given) == len(self.names):
                total = np.zeros(len(values))
                for one in sorted(given):
                    total += given[one]
                self._made[key] = total
                self._news.notify_all()
            came = self._news.wait_for(lambda: key in self._made or self._left, self.patience)
            if not came or key not in self._made:
                raise HanseError(ErrorCode.QUORUM, f"exchange {key}: not all participants have contributed")
            return self._made[key].copy()


@dataclass(frozen=True, slots=True)
class _Seat:
    meeting: Meeting
    name: str

    def sum(self, key: str, values: Floats) -> Floats:
        """See `Sums`."""
        return self.meeting.give(self.name, key, values)

    def end(self) -> None:
        """See `Sums`."""
