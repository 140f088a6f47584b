"""Where the sites of a cell sum in the middle of training: one meeting for each round."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from hanse_learning.site.sums import Meeting, Sums

_PATIENCE_S = 600.0


class Meetings:
    """Meetings by round.

    Args:
        chosen: gives the sites that take part in a round.
    """

    def __init__(self, chosen: Callable[[int], Sequence[str]]) -> None:
        self._chosen = chosen
        self._open: dict[int, Meeting] = {}
        self._lock = threading.Lock()

    def seat(self, number: int, name: str) -> Sums:
        """A site's seat at the round's meeting."""
        return self._of(number).of(name)

    def withdraw(self, number: int) -> None:
        """A site has failed: whoever waits for it is told so."""
        self._of(number).withdraw()

    def _of(self, number: int) -> Meeting:
        with self._lock:
            if number not in self._open:
                self._open.clear()  # one round at a time
                self._open[number] = Meeting(self._chosen(number), patience=_PATIENCE_S)
            return self._open[number]
