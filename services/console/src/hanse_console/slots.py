"""Who may have how many requests under way at once: nobody takes all slots from the others.

The console holds no key and knows nobody; the hub says with each answer whose session it was. Until then, and for who
is not signed in, an address stands for a person.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from hanse_fabric.networks import household_of

_REMEMBERED = 10_000
_STRANGER = "address "


class Slot:
    """A request under way."""

    def __init__(self, slots: Slots, whose: str, mark: str) -> None:
        self._slots, self.whose, self._mark = slots, whose, mark

    def is_of(self, person: str) -> None:
        """The hub has said whose session the request came by; empty: nobody's that it knows."""
        self._slots._learn(self, self._mark, person)


class Slots:
    """The slots for requests to the hub.

    Args:
        most: at once. A person has an eighth of them at most, as has an address; all who are not known have half.
    """

    def __init__(self, most: int) -> None:
        self._most, self._each, self._strange = most, max(2, most // 8), max(2, most // 2)
        self._taken: Counter[str] = Counter()
        self._people: OrderedDict[str, str] = OrderedDict()

    @contextmanager
    def take(self, cookie: str, address: str) -> Iterator[Slot | None]:
        """A slot while inside; None where there is none for this one.

        Args:
            cookie: all cookies of the request. Only a hash is kept, and that only of a session that the hub knows.
            address: whose request it is.
        """
        mark = hashlib.sha256(cookie.encode(errors="replace")).hexdigest() if cookie else ""
        whose = self._people.get(mark) or _STRANGER + household_of(address)
        if not self._is_free(whose):
            yield None
            return
        slot = Slot(self, whose, mark)
        self._taken[slot.whose] += 1
        try:
            yield slot
        finally:
            self._give_back(slot.whose)

    def _is_free(self, whose: str) -> bool:
        if self._taken.total() >= self._most or self._taken[whose] >= self._each:
            return False
        if not whose.startswith(_STRANGER):
            return True
        return sum(taken for who, taken in self._taken.items() if who.startswith(_STRANGER)) < self._strange

    def _learn(self, slot: Slot, mark: str, person: str) -> None:
        self._people.pop(mark, None)
        if not person or not mark:
            return
        self._people[mark] = f"person {person}"
        while len(self._people) > _REMEMBERED:
            self._people.popitem(last=False)
        self._give_back(slot.whose)
        slot.whose = self._people[mark]
        self._taken[slot.whose] += 1

    def _give_back(self, whose: str) -> None:
        self._taken[whose] -= 1
        if not self._taken[whose]:
            del self._taken[whose]
