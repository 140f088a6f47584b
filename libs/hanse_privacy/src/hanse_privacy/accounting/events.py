"""A noisy release as an accountant sees it: a kind and a number, apart from what was released. Standard library only.

Numbers are per unit of sensitivity: what the released value can change by, between two neighbouring data sets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, assert_never, cast, get_args

from hanse_fabric.errors import invalid

EventKind = Literal["gaussian", "laplace", "pure", "concentrated", "chance"]

_LEAST = 1e-100
"""Of amounts: squares of smaller ones would be zero, and an accountant that divides by them tells nothing any more."""


@dataclass(frozen=True, slots=True)
class ReleaseEvent:
    """One release.

    Attributes:
        kind: `gaussian`: normal noise, sensitivity in L2. `laplace`: Laplace noise in every coordinate, sensitivity in
            L1. `pure`: any mechanism of which only epsilon is known (staircase, discrete Laplace). `concentrated`:
            any of which only rho of zero-concentrated privacy is known (discrete Gaussian in ledgers of 0.1.0:
            rho = 1 / (2 sigma^2); Canonne, Kamath, Steinke 2020, theorem 14 for many coordinates). `chance`: a
            probability with which what is said of another release does not hold: it is a part of delta.
        amount: standard deviation or scale per unit of sensitivity; epsilon; rho; probability. Infinite noise is no
            release.
        rate: probability with which each example was in the sample (Poisson); 1 for all. Gaussian only.
        curves: what an accountant has worked out of it, for as long as somebody, such as a ledger, holds it.
    """

    kind: EventKind
    amount: float
    rate: float = 1.0
    curves: dict[tuple[float, ...], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.kind not in get_args(EventKind):
            raise invalid("event.kind", self.kind, "one of " + ", ".join(get_args(EventKind)))
        if not _LEAST <= self.amount <= 1 / _LEAST:  # nor where it is not a number
            raise invalid(f"event.amount of {self.kind}", self.amount, f"a number from {_LEAST:g} to {1 / _LEAST:g}")
        if not 0 < self.rate <= 1:
            raise invalid("event.rate", self.rate, "a probability above 0 and at most 1")
        if self.rate < 1 and self.kind != "gaussian":
            raise invalid("event.rate", self.rate, f"1, for amplification by sampling is not known for {self.kind}")

    @property
    def epsilon(self) -> float:
        """Epsilon with delta 0; infinite where no noise of this kind gives one."""
        match self.kind:
            case "laplace":
                return 1.0 / self.amount
            case "pure":
                return self.amount
            case "gaussian" | "concentrated" | "chance":
                return math.inf
            case unknown:
                assert_never(unknown)

    @property
    def rho(self) -> float | None:
        """Rho of zero-concentrated privacy where that tells all about the event's Renyi curve, else None."""
        match self.kind:
            case "concentrated":
                return self.amount
            case "gaussian":
                return 0.5 / self.amount**2 if self.rate == 1 else None
            case "laplace" | "pure" | "chance":
                return None
            case unknown:
                assert_never(unknown)

    def to_json(self) -> dict[str, Any]:
        """As a ledger keeps it."""
        return {"kind": self.kind, "amount": self.amount, "rate": self.rate}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> ReleaseEvent:
        """The inverse of `to_json`.

        Raises:
            HanseError: INVALID_INPUT.
        """
        try:
            return cls(cast(EventKind, body["kind"]), float(body["amount"]), float(body["rate"]))
        except (KeyError, TypeError, ValueError):
            raise invalid("event", dict(body), "kind, amount and rate") from None


def gaussian(noise: float, rate: float = 1.0) -> ReleaseEvent:
    """Normal noise with a standard deviation of `noise` sensitivities (L2), over a Poisson sample of `rate`."""
    return ReleaseEvent("gaussian", noise, rate)


def laplace(scale: float) -> ReleaseEvent:
    """Laplace noise with a scale of `scale` sensitivities (L1)."""
    return ReleaseEvent("laplace", scale)
