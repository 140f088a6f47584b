"""The interface of accountants, and the two that there are by name. Loads no numpy until one is asked a number."""

from __future__ import annotations

from typing import Literal, Protocol

from hanse_privacy.accounting.events import Event

AccountantName = Literal["rdp", "pld"]


class Accountant(Protocol):
    """Composes releases, in any order, chosen one after the other or all at once."""

    def compose(self, event: Event, count: int = 1) -> None:
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


def make_accountant(name: AccountantName = "rdp") -> Accountant:
    """`rdp` knows every event and composes fast; `pld` is tighter where it knows the distribution."""
    if name == "pld":
        from hanse_privacy.accounting.pld import PldAccountant

        return PldAccountant()
    from hanse_privacy.accounting.rdp import RdpAccountant

    return RdpAccountant()
