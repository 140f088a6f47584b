"""When a client that lost its server tries again: soon where few have, and spread out where thousands have.

Thousands of sites lose a server in the same moment, and none of them knows of the others. A TLS handshake takes a
server milliseconds of processor, so attempts that come together wait for each other until all give up, and begin anew.
So the first attempt waits, too, between nothing and a second, and each further pause is drawn from the upper half of
one that doubles: it is at most about twice as long as what has passed before it, so whoever lost a server for a short
time is not kept waiting long. A handshake that the server was too busy for may take longer the next time: what was
begun is not thrown away again.
"""

from __future__ import annotations

import random

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
"""The longest pause before the first attempt after a loss, and before the sixth and later ones."""
STARTING_PAUSE_S = 0.2
"""The longest after the first attempt of a client that was never connected."""
FIRST_PATIENCE_S, LONGEST_PATIENCE_S = 5.0, 30.0
"""How long a server may take for each step of the first handshake, and of later ones when it took too long before."""


class Pauses:
    """Those of one client, since its last connection. One that never had any has lost nothing together with others,
    and people wait for it: its first pauses are short."""

    def __init__(self) -> None:
        self.patience = FIRST_PATIENCE_S
        self._shortest, self._longest = 0.0, STARTING_PAUSE_S

    def next(self) -> float:
        """Seconds to wait before the next attempt."""
        pause = random.uniform(self._shortest, self._longest)  # noqa: S311 - only spreads clients
        self._longest = min(LONGEST_PAUSE_S, 2 * self._longest)
        self._shortest = self._longest / 2
        return pause

    def took_too_long(self) -> None:
        """A server answered, and was too busy to go on in time."""
        self.patience = min(LONGEST_PATIENCE_S, 2 * self.patience)

    def connected(self) -> None:
        """Begin anew."""
        self.patience = FIRST_PATIENCE_S
        self._shortest, self._longest = 0.0, FIRST_PAUSE_S
