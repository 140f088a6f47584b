"""How often somebody may try a password: by address, by the person whose it is, and by a browser that the person knows.

Strangers are counted apart from browsers in which the person has signed in before, which show a signed cookie (the
"device cookies" of OWASP). So whoever guesses at a person's name shuts out strangers, and not the person.
"""

from __future__ import annotations

from dataclasses import dataclass

from hanse_coordinator.auth import FailureLimiter
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.networks import household_of

WINDOW_S = 900
OF_A_BROWSER, OF_AN_ADDRESS, OF_A_PERSON = 10, 30, 20
"""Failures in a window: of one known browser; of one address, whomever it tries; at one person, of all strangers."""
_REMEMBERED = 65_536


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try, which counts as failed until it is forgiven."""

    limits: tuple[tuple[FailureLimiter, str], ...]

    def forgive(self) -> None:
        """It was none of a stranger who guesses."""
        for limiter, whose in self.limits:
            limiter.forgive(whose)


class Attempts:
    """Counts tries, as many of each kind as fit in memory; each replica for itself."""

    def __init__(self, clock: Clock) -> None:
        def limiter(allowed: int) -> FailureLimiter:
            return FailureLimiter(clock, allowed=allowed, addresses=_REMEMBERED, window_s=WINDOW_S)

        self._browsers, self._addresses, self._people = map(limiter, (OF_A_BROWSER, OF_AN_ADDRESS, OF_A_PERSON))

    def begin(self, *, name: str, address: str, browser: str | None) -> Attempt:
        """One try more.

        Args:
            browser: which of the person's own it is, by a cookie that was checked; None: it may be anybody's.

        Raises:
            HanseError: TOO_MANY, before anything is looked at.
        """
        limits: tuple[tuple[FailureLimiter, str], ...]
        if browser is not None:
            limits = ((self._browsers, f"{name} {browser}"),)
        else:
            limits = ((self._addresses, household_of(address)), (self._people, name))
        if any(limiter.exhausted(whose) for limiter, whose in limits):
            raise HanseError(
                ErrorCode.TOO_MANY, "password: it was wrong too often, here or for this name",
                hint="wait a quarter of an hour, or sign in with a browser in which you have signed in before; an "
                "operator can give you a one-time link, which works at once",
            )  # fmt: skip
        for limiter, whose in limits:
            limiter.failed(whose)
        return Attempt(limits)
