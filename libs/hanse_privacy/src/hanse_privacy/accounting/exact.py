"""Closed forms: the exact curve of normal noise, and composition of pure epsilons. Standard library only.

Normal noise of standard deviations s_1, s_2, ... (per unit of L2 sensitivity) composes exactly to one of 1/sqrt(sum
1/s_i^2), whose curve is delta = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu), mu = 1/s (Balle and Wang 2018).
"""

from __future__ import annotations

import math

from hanse_fabric.errors import invalid


def gaussian_delta(noise: float, epsilon: float) -> float:
    """The smallest delta at `epsilon` of normal noise with `noise` sensitivities of standard deviation."""
    mu = 1.0 / noise
    first = _log_phi(mu / 2 - epsilon / mu)
    second = epsilon + _log_phi(-mu / 2 - epsilon / mu)
    return math.exp(first) * -math.expm1(second - first) if second < first else 0.0


def gaussian_epsilon(noise: float, delta: float) -> float:
    """The smallest epsilon at `delta` of normal noise with `noise` sensitivities of standard deviation."""
    _check_delta(delta)
    if gaussian_delta(noise, 0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while gaussian_delta(noise, high) > delta:
        low, high = high, high * 2
    return _bisect(low, high, lambda epsilon: gaussian_delta(noise, epsilon) <= delta)


def gaussian_noise(epsilon: float, delta: float, count: int = 1) -> float:
    """The least noise, in sensitivities, with which `count` releases together keep (epsilon, delta).

    The analytic Gaussian mechanism of Balle and Wang (2018); valid for every epsilon, unlike sqrt(2 ln(1.25/delta)).
    """
    _check_delta(delta)
    if epsilon <= 0:
        raise invalid("epsilon", epsilon, "a number above 0")
    high = 1.0
    while gaussian_delta(high, epsilon) > delta:
        high *= 2
    low = high / 2
    while gaussian_delta(low, epsilon) <= delta:
        low, high = low / 2, low
    return math.sqrt(count) * _bisect(low, high, lambda noise: gaussian_delta(noise, epsilon) <= delta)


def pure_delta(epsilons_and_counts: list[tuple[float, int]], epsilon: float) -> float:
    """0 where basic composition of pure epsilons keeps `epsilon`, else 1: the bound that always holds."""
    return 0.0 if math.fsum(each * count for each, count in epsilons_and_counts) <= epsilon else 1.0


def _bisect(low: float, high: float, holds: object) -> float:
    assert callable(holds)
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise invalid("delta", delta, "above 0 and below 1, which normal noise needs")


def _log_phi(x: float) -> float:
    """log of the normal distribution function, also where it is below the smallest float."""
    if x > -30:
        return math.log(0.5 * math.erfc(-x / math.sqrt(2)))
    # Asymptotic series of the Mills ratio; the relative error is below 1e-10 from here.
    square = 1 / (x * x)
    series = 1 - square * (1 - 3 * square * (1 - 5 * square * (1 - 7 * square)))
    return -x * x / 2 - math.log(-x) - 0.5 * math.log(2 * math.pi) + math.log(series)
