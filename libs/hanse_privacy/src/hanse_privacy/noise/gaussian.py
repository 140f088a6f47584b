"""The exact privacy curve of Gaussian noise, and its inverses (Balle and Wang, ICML 2018, theorem 8). No numpy."""

from __future__ import annotations

import math

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
    best = math.inf
    for step in range(1, 2000):
        alpha = 1 + math.exp(-9 + 0.01 * step)
        at = rho * alpha + (-math.log(delta) - math.log(alpha)) / (alpha - 1) + math.log1p(-1 / alpha)
        best = min(best, at)
    return max(0.0, best)


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
