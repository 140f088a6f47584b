"""What a ledger charges a run whose releases are of several kinds, as far as that does not depend on a site's data.

A ledger does not know beforehand what it will be asked, so a proven filter adds such releases up (`accounting.pld`):
that is more than the sum of the epsilons that the noise was made for. No numpy, so that a hub can say it.
"""

from __future__ import annotations

import math

from hanse_privacy.accounting.accountant import ADAPTIVE, FILTER_ORDERS, SAMPLING
from hanse_privacy.noise.gaussian import gaussian_delta

_ROUNDING = 1 + 1e-9


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
    """What a ledger charges for normal noise of `rho` together with `count` releases of epsilon `pure`."""
    share = (delta - SAMPLING) * ADAPTIVE / len(FILTER_ORDERS)
    if share <= 0:
        return math.inf
    bounds = (
        rho * order + count * _divergence(pure, order) + math.log1p(-1 / order) - math.log(share * order) / (order - 1)
        for order in FILTER_ORDERS
    )
    return max(0.0, min(bounds)) * _ROUNDING


def _divergence(epsilon: float, order: float) -> float:
    """Of randomized response (`accounting.rdp`)."""
    log_p, log_q = -math.log1p(math.exp(-epsilon)), -epsilon - math.log1p(math.exp(-epsilon))
    first, second = order * log_p + (1 - order) * log_q, order * log_q + (1 - order) * log_p
    both = max(first, second) + math.log1p(math.exp(-abs(first - second)))
    return min(max(both / (order - 1), 0.0), epsilon)
