"""How much noise a budget needs: the accountants, searched backwards. Answers are cached, because a run asks every
round."""

from __future__ import annotations

import math
from functools import lru_cache

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_privacy.accounting.accountant import AccountantName, make_accountant
from hanse_privacy.accounting.events import Event, Kind

LARGEST_NOISE = 1e7
"""More noise than this is no answer but a mistake in the numbers."""
_PRECISION = 1e-4
_SMALLEST = 1e-3


@lru_cache(maxsize=1024)
def noise_for(
    kind: Kind, epsilon: float, delta: float, count: int, *, rate: float = 1.0, accountant: AccountantName = "rdp"
) -> float:
    """The least `Event.amount` (gaussian, laplace) or the largest (pure, concentrated) of `count` equal releases that
    together keep (epsilon, delta): at most 1e-4 of it more than is needed, never less.

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
        return epsilon / count if kind == "pure" else count / epsilon

    def keeps(noise: float) -> bool:
        made = make_accountant(accountant)
        made.compose(Event(kind, amount_of(kind, noise), rate), count)
        return made.epsilon(delta) <= epsilon

    low, high = 0.0, 1.0
    while not keeps(high):
        low, high = high, high * 2
        if high > LARGEST_NOISE:
            raise HanseError(
                ErrorCode.INVALID_INPUT,
                f"epsilon {epsilon:g} at delta {delta:g} cannot be kept over {count} releases by any noise",
                hint="allow a larger epsilon or delta, or fewer rounds",
            )
    while low == 0.0 and high > _SMALLEST:
        if not keeps(high / 2):
            low = high / 2
        else:
            high /= 2
    while high - low > _PRECISION * high:
        middle = (low + high) / 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return amount_of(kind, high)


def amount_of(kind: Kind, noise: float) -> float:
    """An event's amount, from noise per unit of sensitivity: more noise is always safer."""
    match kind:
        case "pure":
            return 1.0 / noise
        case "concentrated":
            return 0.5 / noise**2
        case _:
            return noise


def noise_of_amount(kind: Kind, amount: float) -> float:
    """The inverse of `amount_of`."""
    return math.sqrt(0.5 / amount) if kind == "concentrated" else amount_of(kind, amount)
