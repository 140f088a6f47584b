"""How much noise a budget needs: the accountants, searched backwards. Answers are cached, because a run asks every
round."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import assert_never

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_privacy.accounting.accountant import AccountantName, make_accountant
from hanse_privacy.accounting.events import EventKind, ReleaseEvent

LARGEST_NOISE = 1e7
"""More noise than this is no answer but a mistake in the numbers."""
_PRECISION = 1e-4
_SMALLEST = 1e-3
_FAR = 50.0
_GUESSES = 40
"""By false position, which takes some twenty. From then on halves are taken, for each guess may take seconds: so a hub
finds no numbers for which a site guesses on and on."""


@lru_cache(maxsize=1024)
def noise_for(
    kind: EventKind, epsilon: float, delta: float, count: int, *, rate: float = 1.0, accountant: AccountantName = "pld"
) -> float:
    """The least `ReleaseEvent.amount` (gaussian, laplace) or the largest (pure, concentrated) of `count` equal
    releases that together keep (epsilon, delta): at most 1e-4 of it more than is needed, never less.

    Raises:
        HanseError: INVALID_INPUT where the numbers make no sense, or no noise suffices.
    """
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise invalid("epsilon", epsilon, "a number above 0")
    if count < 1:
        raise invalid("steps", count, "at least 1")
    if not 0 <= delta < 1 or (delta == 0 and kind in ("gaussian", "concentrated")):
        raise invalid("delta", delta, "below 1, and above 0 for normal noise")
    if delta == 0:
        return epsilon / count if kind == "pure" else amount_of(kind, count / epsilon)

    def excess(noise: float) -> float:
        """Above 0 where this noise does not keep epsilon: on a scale of logarithms, on which it falls nearly evenly."""
        made = make_accountant(accountant)
        made.compose(ReleaseEvent(kind, amount_of(kind, noise), rate), count)
        spent = made.epsilon(delta)
        return min(_FAR, math.log(spent / epsilon)) if spent > 0 else -_FAR

    high, above = 1.0, excess(1.0)
    step = 2.0 if above > 0 else 0.5
    low, below = high, above
    while (below > 0) == (step > 1) and low > _SMALLEST:  # until the two are on either side
        high, above = low, below
        low *= step
        if low > LARGEST_NOISE:
            raise HanseError(
                ErrorCode.INVALID_INPUT,
                f"epsilon {epsilon:g} at delta {delta:g} cannot be kept over {count} releases by any noise",
                hint="allow a larger epsilon or delta, or fewer rounds",
            )
        below = excess(low)
    return amount_of(kind, _closed_in(excess, (low, below), (high, above)))


def _closed_in(excess: Callable[[float], float], one: tuple[float, float], other: tuple[float, float]) -> float:
    """The least noise without an excess between two, each given with its excess, by false position on logarithms with
    halved weights (Dowell and Jarratt 1971)."""
    (short, above), (enough, below) = sorted((one, other))
    if above <= 0:
        return short
    guessed = 0
    while enough / short > 1 + _PRECISION:
        share = min(max(above / (above - below), 0.02), 0.98) if guessed < _GUESSES else 0.5
        guessed += 1
        noise = short * (enough / short) ** share
        # A little to the far side of the root, so that both ends come near it.
        noise = min(max(noise * (1 + _PRECISION / 3), short * (1 + _PRECISION / 3)), enough / (1 + _PRECISION / 3))
        found = excess(noise)
        if found > 0:
            short, above, below = noise, found, below / 2
        else:
            enough, below, above = noise, found, above / 2
    return enough


def amount_of(kind: EventKind, noise: float) -> float:
    """An event's amount, from noise per unit of sensitivity: more noise is always safer."""
    match kind:
        case "pure":
            return 1.0 / noise
        case "concentrated":
            return 0.5 / noise**2
        case "gaussian" | "laplace":
            return noise
        case "chance":
            raise invalid("event.kind", kind, "a release with noise: no noise makes a chance smaller")
        case unknown:
            assert_never(unknown)


def noise_of_amount(kind: EventKind, amount: float) -> float:
    """The inverse of `amount_of`."""
    return math.sqrt(0.5 / amount) if kind == "concentrated" else amount_of(kind, amount)
