"""What people are told of a site's doings that it can repeat as it likes: the first of it, and then one a minute.

The audit is kept for good, and it is all projects': a site that could add to it as often as it asks would fill it, and
then nobody's changes are taken any more. What is not told is counted all the same.
"""

from __future__ import annotations

from hanse_fabric.allowance import Allowance
from hanse_fabric.clock import Clock

AT_ONCE = 30
_EVERY_S = 60.0
_SITES = 200_000


class Sparing:
    """Of each site, as one coordinator tells of it."""

    def __init__(self, clock: Clock) -> None:
        self._left = Allowance(clock, per_second=1 / _EVERY_S, burst=AT_ONCE, most=_SITES)

    def due(self, project: str, participant: str) -> bool:
        """Whether people are told this time."""
        return self._left.take((project, participant))
