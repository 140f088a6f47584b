"""What a run will release, said before its first release: how often each of several kinds, over so many rounds.

A plan is a row of amounts that grow, a round at a time: after the k-th round there is of each kind k / rounds of what
the plan has of it, rounded up, and after the last round the same again. Whatever is released is charged as the first
amount of the row that holds it (`reached`), so a run that stops early is charged for the rounds that it had, one that
repeats a round for one more, and one that goes beyond its plan for the rounds of its next.

Why that is proven though answers may decide what is asked next: all of an amount has one dominating pair, the product
of its releases' (Zhu, Dong, Wang 2022, theorem 10), in whichever order they are asked, for what is left of it has one
pair, too, whatever was taken from it first; so it is by induction from the last release on. What is left out is
post-processing. Normal noise may be parted otherwise than in the plan, for the squares of sensitivity over noise that
are left are one pair again. And a budget has room for one amount of the row and not for the next, which is known before
anything is released: what keeps within the budget keeps within that amount, whoever chooses when to stop.

Standard library only.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hanse_fabric.errors import invalid
from hanse_privacy.accounting.events import ReleaseEvent

_ROUNDING = 1 + 1e-12
"""By how much sums of the same numbers in another order may differ; whoever composes an amount adds it."""
_MOST_ROUNDS = 10**9
"""Of a run that has a plan."""


@dataclass(frozen=True, slots=True)
class ReleasePlan:
    """A run's releases.

    Attributes:
        releases: of the whole run, by event; none where nobody knows them, which holds nothing.
        rounds: over which they are spread.
        note: for people.
    """

    releases: tuple[tuple[ReleaseEvent, int], ...]
    rounds: int
    note: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not 1 <= self.rounds <= _MOST_ROUNDS:
            raise invalid("plan.rounds", self.rounds, f"a whole number from 1 to {_MOST_ROUNDS}")
        if min((count for _, count in self.releases), default=1) < 1:
            raise invalid("plan.releases.count", min(count for _, count in self.releases), "1 or more")
        if len({event for event, _ in self.releases}) < len(self.releases):
            raise invalid("plan.releases", len(self.releases), "each event once")

    @classmethod
    def of(
        cls, releases: Iterable[tuple[ReleaseEvent, int]], rounds: int, note: str = "", *, always: bool = False
    ) -> ReleasePlan | None:
        """The plan of a run with these releases; None where all are of one kind, which needs none, or where one is of a
        kind of which no distribution of losses is known.

        Args:
            always: also where all are of one kind.
        """
        counts = Counter[ReleaseEvent]()
        for event, count in releases:
            counts[event] += count
        kinds = {"normal" if is_normal(event) else event for event in counts if event.kind != "chance"}
        if (len(kinds) < 2 and not always) or any(event.kind == "concentrated" for event in counts):
            return None
        order = sorted(counts.items(), key=lambda one: (one[0].kind, one[0].amount, one[0].rate))
        return cls(tuple(order), rounds, note)

    def reached(self, done: Mapping[ReleaseEvent, int]) -> tuple[tuple[ReleaseEvent, int], ...] | None:
        """The least amount of the row that holds all of what was released; None where none does."""
        planned = dict(self.releases)
        at = 1
        for event, count in done.items():
            if is_normal(event):
                continue
            if event not in planned:
                return None
            at = max(at, (count - 1) * self.rounds // planned[event] + 1)
        needed = math.fsum(rho_of(event) * count for event, count in done.items()) / _ROUNDING
        if self._rho(self.rounds) == 0 < needed:
            return None
        low, high = at - 1, at
        while self._rho(high) < needed:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._rho(middle) < needed else (low, middle)
        return self._after(high)

    def _after(self, rounds: int) -> tuple[tuple[ReleaseEvent, int], ...]:
        return tuple((event, -(-count * rounds // self.rounds)) for event, count in self.releases)

    def _rho(self, rounds: int) -> float:
        return math.fsum(rho_of(event) * count for event, count in self._after(rounds))

    def to_json(self) -> dict[str, Any]:
        """As a ledger keeps it."""
        releases = [{"event": event.to_json(), "count": count} for event, count in self.releases]
        return {"releases": releases, "rounds": self.rounds, "note": self.note}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> ReleasePlan:
        """The inverse of `to_json`.

        Raises:
            HanseError: INVALID_INPUT.
        """
        try:
            releases = tuple((ReleaseEvent.from_json(one["event"]), int(one["count"])) for one in body["releases"])
            return cls(releases, int(body["rounds"]), str(body["note"]))
        except (KeyError, TypeError, ValueError):
            raise invalid("plan", dict(body), "releases, rounds and note") from None


def is_normal(event: ReleaseEvent) -> bool:
    """Whether an event is of normal noise on all, which adds up with any other such."""
    return event.kind == "gaussian" and event.rate == 1


def rho_of(event: ReleaseEvent) -> float:
    """Half the square of sensitivity over noise, of what adds up so; else 0."""
    rho = event.rho if is_normal(event) else None
    return rho or 0.0
