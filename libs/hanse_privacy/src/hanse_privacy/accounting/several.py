"""Normal noise together with releases of which only epsilon is known: by the plan of their run their exact epsilon, and
what a ledger's filter tells of them beside other runs.

A release of which only epsilon is known is dominated by randomized response (Kairouz, Oh, Viswanath 2015), whose loss
is +epsilon or -epsilon. So the hockey-stick divergence of all together is that of the normal noise, at an epsilon that
is less by the others' loss, in the mean over these losses. No numpy, so that a hub can say it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

from hanse_privacy.accounting.accountant import ADAPTIVE, FILTER_ORDERS, SAMPLING
from hanse_privacy.noise.gaussian import gaussian_delta

_MOST_LOSSES = 20_000
_NEGLIGIBLE = 1e-30
"""Of probability: losses that are less likely are taken for infinite."""
_ROUNDING = 1 + 1e-9
"""Of probabilities, which are made of logarithms of factorials."""
_LARGEST = 1e9
"""Of epsilons that are looked for."""


def rho_of_normal(epsilon: float, delta: float) -> float:
    """Rho of the normal noise that is (epsilon, delta)-private and no more than that, from above."""
    low, high = 0.0, 1.0
    while gaussian_delta(1 / math.sqrt(2 * high), epsilon) <= delta:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        kept = gaussian_delta(1 / math.sqrt(2 * middle), epsilon) <= delta
        low, high = (middle, high) if kept else (low, middle)
    return high


def filtered_epsilon(rho: float, pure: float, count: int, delta: float) -> float:
    """What a ledger's filter tells of normal noise of `rho` together with `count` releases of epsilon `pure`."""
    share = (delta - SAMPLING) * ADAPTIVE / len(FILTER_ORDERS)
    if share <= 0:
        return math.inf
    bounds = (
        rho * order + count * _divergence(pure, order) + math.log1p(-1 / order) - math.log(share * order) / (order - 1)
        for order in FILTER_ORDERS
    )
    return max(0.0, min(bounds)) * _ROUNDING


def normal_and_pure(rho: float, pure: Mapping[float, int], delta: float) -> float:
    """The epsilon at delta of normal noise of `rho` (0: none) and so many releases of each epsilon, from above.

    Infinite where there are more than 20,000 sums of losses to look at.
    """
    return _normal_and_pure(rho, tuple(sorted(pure.items())), delta)


@lru_cache(maxsize=1024)
def _normal_and_pure(rho: float, pure: tuple[tuple[float, int], ...], delta: float) -> float:
    if math.prod(count + 1 for _, count in pure) > _MOST_LOSSES or not delta > 0:
        return math.inf
    losses, left_out = _losses(pure)

    def kept(epsilon: float) -> bool:
        above = math.fsum(chance * _delta(rho, epsilon - loss) for loss, chance in losses)
        return above * _ROUNDING + left_out <= delta

    if kept(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while not kept(high):
        low, high = high, 2 * high
        if high > _LARGEST:
            return math.inf
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if kept(middle) else (middle, high)
    return high


def _losses(pure: tuple[tuple[float, int], ...]) -> tuple[list[tuple[float, float]], float]:
    """Sums of losses with their probabilities, and how probable those are that are left out."""
    found, left_out = [(0.0, 1.0)], 0.0
    for epsilon, count in pure:
        one = [((2 * ups - count) * epsilon, _probability(epsilon, count, ups)) for ups in range(count + 1)]
        both = [(loss + more, chance * by) for loss, chance in found for more, by in one]
        found = [(loss, chance) for loss, chance in both if chance >= _NEGLIGIBLE]
        left_out += (len(both) - len(found)) * _NEGLIGIBLE
    return found, left_out


def _probability(epsilon: float, count: int, ups: int) -> float:
    """Of so many losses of +epsilon among `count`."""
    ways = math.lgamma(count + 1) - math.lgamma(ups + 1) - math.lgamma(count - ups + 1)
    return math.exp(ways - (count - ups) * epsilon - count * math.log1p(math.exp(-epsilon)))


def _delta(rho: float, epsilon: float) -> float:
    """Of the normal noise alone, at any epsilon, also below 0."""
    if rho == 0:
        return -math.expm1(min(epsilon, 0.0))
    return gaussian_delta(1 / math.sqrt(2 * rho), epsilon)


def _divergence(epsilon: float, order: float) -> float:
    """Of randomized response (`accounting.rdp`)."""
    log_p, log_q = -math.log1p(math.exp(-epsilon)), -epsilon - math.log1p(math.exp(-epsilon))
    first, second = order * log_p + (1 - order) * log_q, order * log_q + (1 - order) * log_p
    both = max(first, second) + math.log1p(math.exp(-abs(first - second)))
    return min(max(both / (order - 1), 0.0), epsilon)
