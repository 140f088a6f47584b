"""The exact privacy curve of Gaussian noise, and its inverses (Balle and Wang, ICML 2018, theorem 8). No numpy."""

from __future__ import annotations

import math
from functools import lru_cache

from hanse_fabric.errors import ErrorCode, HanseError

_STEPS = 200


def gaussian_delta(ratio: float, epsilon: float) -> float:
    """The smallest delta such that Gaussian noise is (epsilon, delta)-private.

    Args:
        ratio: standard deviation of the noise per unit of L2 sensitivity.
    """
    near, far = 0.5 / ratio - epsilon * ratio, -0.5 / ratio - epsilon * ratio
    return max(0.0, math.exp(_log_phi(near)) - math.exp(min(epsilon + _log_phi(far), 0.0)))


def gaussian_epsilon(ratio: float, delta: float) -> float:
    """The smallest epsilon at which Gaussian noise of this ratio is (epsilon, delta)-private, from above, to 1e-12."""
    _check_delta(delta)
    if gaussian_delta(ratio, 0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while gaussian_delta(ratio, high) > delta:
        low, high = high, 2 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(ratio, middle) > delta else (low, middle)
        if high - low <= 1e-12 * high:
            break
    return high


def concentrated_epsilon(rho: float, delta: float) -> float:
    """The epsilon at delta of rho-zCDP (Canonne, Kamath, Steinke 2020, proposition 12), from above.

    It is rho alpha + (ln(1/delta) - ln alpha)/(alpha - 1) + ln(1 - 1/alpha) for every alpha > 1: the least over a grid.
    """
    _check_delta(delta)
    chance = -math.log(delta)
    return max(0.0, min(rho * alpha + (chance - log) / (alpha - 1) + rest for alpha, log, rest in _orders()))


@lru_cache(maxsize=1024)
def concentrated_rho(epsilon: float, delta: float) -> float:
    """The largest rho, below 2^20, whose epsilon at delta is no more than this, from below; 0 where there is none.

    A hub asks for it in each round of a run, with the same numbers.
    """
    low, high = 0.0, 2.0**20
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if concentrated_epsilon(middle, delta) <= epsilon else (low, middle)
    return low


@lru_cache(maxsize=1)
def _orders() -> tuple[tuple[float, float, float], ...]:
    """(alpha, ln alpha, ln(1 - 1/alpha)) of a grid of orders."""
    alphas = [1 + math.exp(-9 + 0.01 * step) for step in range(1, 2000)]
    return tuple((alpha, math.log(alpha), math.log1p(-1 / alpha)) for alpha in alphas)


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise HanseError(ErrorCode.INVALID_INPUT, f"delta: {delta}, expected between 0 and 1: none is kept at delta 0")


def _log_phi(x: float) -> float:
    """ln of the standard normal distribution function; by its asymptotic series far below zero."""
    if x > -30:
        return math.log(0.5 * math.erfc(-x / math.sqrt(2)))
    inverse = 1 / (x * x)
    series = 1 - inverse * (1 - 3 * inverse * (1 - 5 * inverse))
    return -x * x / 2 - math.log(-x) - 0.5 * math.log(2 * math.pi) + math.log(series)
