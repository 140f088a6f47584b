"""How often each of many may do something: so many times at once, and so many a second in the long run."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from hanse_fabric.clock import Clock


class Allowance:
    """A bucket of tokens for each (RFC 2697 calls it so), full at the beginning.

    Args:
        per_second: that come back.
        burst: that a full one has.
        most: that are remembered; who was not seen for longest is forgotten, and has a full one again.
    """

    def __init__(self, clock: Clock, *, per_second: float, burst: float, most: int) -> None:
        self.per_second, self._clock, self._burst, self._most = per_second, clock, burst, most
        self._left: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, who: Hashable) -> bool:
        """Whether there was one left, which is taken."""
        now = self._clock.monotonic()
        left, at = self._left.pop(who, (self._burst, now))
        left = min(self._burst, left + (now - at) * self.per_second)
        self._left[who] = (max(0.0, left - 1), now)
        if len(self._left) > self._most:
            self._left.popitem(last=False)
        return left >= 1
