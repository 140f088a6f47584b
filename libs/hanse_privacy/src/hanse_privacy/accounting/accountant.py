"""The interface of accountants, and the two that there are by name. Loads no numpy until one is asked a number."""

from __future__ import annotations

from typing import Literal, Protocol, get_args

from hanse_fabric.errors import invalid
from hanse_privacy.accounting.events import ReleaseEvent
from hanse_privacy.accounting.plan import ReleasePlan

AccountantName = Literal["rdp", "pld"]

SAMPLING = 2.0**-50
"""Of delta, for noise being drawn a little otherwise than its law says: 2^50 numbers, at any epsilon up to 25
(`hanse_privacy.noise.exact`)."""
ADAPTIVE = 2.0**-8
"""Share of delta that is kept for releases of several kinds, each chosen by what came before."""

FILTER_ORDERS = (2.5, 5.0, 8.0, 16.0, 40.0)
"""Of the filter for releases of several kinds. With these it tells 1.3 to 2.42 times what `rdp` does (noise 0.5 to 10,
rates 0.01 to 1, epsilon 0.3 to 12 at delta 1e-5; more than 1.6 times in 43 of 102 such runs), and 3.04 times at a rate
of 0.003: most for a few releases of small samples, least for thousands."""


class Accountant(Protocol):
    """Composes releases, in any order, chosen one after the other or all at once."""

    def compose(self, event: ReleaseEvent, count: int = 1) -> None:
        """Add `count` releases.

        Raises:
            HanseError: INVALID_INPUT for an event that this accountant cannot compose.
        """
        ...

    def epsilon(self, delta: float) -> float:
        """An epsilon that all of them keep together at `delta`: never below the true one; infinite where none is known.

        Raises:
            HanseError: INVALID_INPUT for a delta that is not in [0, 1).
        """
        ...


def accountant_of(placement: str, own: AccountantName) -> AccountantName:
    """By which the noise of a placement is made.

    Args:
        own: of the site, or hub, that makes it.
    """
    # Shares of one noise are parts of a whole that all who add one must reckon alike. Whoever counts otherwise does so
    # with the noise that there is: were it charged for the larger noise of its own reckoning, it would pay too little.
    return "pld" if placement == "distributed" else own


def make_accountant(name: AccountantName = "pld", plan: ReleasePlan | None = None) -> Accountant:
    """`pld` is tight for releases of one kind or of a plan, and proved for those that are chosen by what came before;
    `rdp` is looser, its proof is for releases that are fixed beforehand, and it needs no plan.

    Args:
        plan: was said before the first release, which is a part of it.

    Raises:
        HanseError: INVALID_INPUT for another name.
    """
    match name:
        case "pld":
            from hanse_privacy.accounting.pld import PldAccountant

            return PldAccountant(plan)
        case "rdp":
            from hanse_privacy.accounting.rdp import RdpAccountant

            return RdpAccountant()
        case unknown:
            raise invalid("accountant", unknown, "one of " + ", ".join(get_args(AccountantName)))


def check_delta(delta: float) -> None:
    """Raises INVALID_INPUT for a delta that is not in [0, 1)."""
    if not 0 <= delta < 1:
        raise invalid("delta", delta, "at least 0 and below 1")


def delta_of_alike(delta: float) -> float:
    """What of delta the accountant `pld` has for releases that are all alike; 0 where nothing is left."""
    return max(0.0, (delta - SAMPLING) * (1 - ADAPTIVE))
