"""Renyi accounting (Mironov 2017; sampling: Mironov, Talwar, Zhang 2019), in closed forms or by an integral.

The curve of an event is computed once; composing is then adding vectors. That the least over all
orders is kept is proved for releases that are fixed beforehand.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from hanse_fabric.errors import invalid
from hanse_privacy.accounting.accountant import SAMPLING, check_delta
from hanse_privacy.accounting.events import ReleaseEvent

Curve = npt.NDArray[np.float64]

ORDERS = tuple(
    sorted(
        {round(1.02 + 0.04 * step, 2) for step in range(25)}
        | {round(2 + 0.1 * step, 1) for step in range(60)}
        | {*range(8, 65), *range(68, 132, 4), *range(144, 272, 16), 384, 512, 1024}
    )
)
_LARGEST_EXPONENT = 1e6
"""Divergences beyond are taken for infinite."""
_LITTLE_NOISE = 0.05


class RdpAccountant:
    """See `Accountant`. Epsilon is the least of what Renyi composition gives for all events, and what it gives for
    those without a pure epsilon plus the sum of the pure ones (basic composition)."""

    def __init__(self) -> None:
        self._curve: Curve | None = None
        self._rest: Curve | None = None
        self._pure = 0.0
        self._chance = 0.0

    def compose(self, event: ReleaseEvent, count: int = 1) -> None:
        """See `Accountant.compose`."""
        if count < 1:
            raise invalid("count", count, "at least 1")
        if event.kind == "chance":
            self._chance += event.amount * count
            return
        curve = curve_of(event) * count
        self._curve = curve if self._curve is None else self._curve + curve
        if math.isfinite(event.epsilon):
            self._pure += event.epsilon * count
        else:
            self._rest = curve if self._rest is None else self._rest + curve

    def epsilon(self, delta: float) -> float:
        """See `Accountant.epsilon`."""
        check_delta(delta)
        if delta < self._chance:
            return math.inf
        delta -= self._chance
        if self._curve is None:
            return 0.0
        left = max(0.0, delta - SAMPLING)
        basic = self._pure + (0.0 if self._rest is None else epsilon_of(self._rest, left))
        return min(basic, epsilon_of(self._curve, left))


def epsilon_of(curve: Curve, delta: float, orders: tuple[float, ...] = ORDERS) -> float:
    """Epsilon at `delta` from a Renyi curve over `orders` (Canonne, Kamath, Steinke 2020, proposition 12)."""
    if delta == 0:
        return 0.0 if not curve.any() else math.inf
    known = np.isfinite(curve)
    if not known.any():
        return math.inf
    alphas, divergences = np.asarray(orders)[known], curve[known]
    bounds = divergences + np.log1p(-1 / alphas) - np.log(delta * alphas) / (alphas - 1)
    # Bretagnolle and Huber's bound: so small a divergence keeps (0, delta).
    bounds[delta**2 + np.expm1(-divergences) > 0] = 0.0
    return max(0.0, float(bounds.min()))


def curve_of(event: ReleaseEvent, orders: tuple[float, ...] = ORDERS) -> Curve:
    """The Renyi curve of one release over `orders`, ascending. The event keeps it: a ledger of very many unlike
    releases would overflow any other room, and make all anew at each release.

    Raises:
        HanseError: INVALID_INPUT for a `chance`, which has none.
    """
    kept: Curve | None = event.curves.get(orders)
    if kept is None:
        kept = event.curves[orders] = _curve(event, orders)
    return kept


@lru_cache(maxsize=4096)  # of events that are equal, and not the same
def _curve(event: ReleaseEvent, orders: tuple[float, ...]) -> Curve:
    alphas = np.asarray(orders, dtype=np.float64)
    if event.rho is not None:
        curve = event.rho * alphas
    elif event.kind == "pure":
        curve = _pure_curve(event.amount, alphas)
    elif event.kind == "laplace":
        curve = _laplace_curve(1 / event.amount, alphas)
    elif event.kind == "gaussian":
        curve = np.array([sampled_divergence(event.amount, event.rate, alpha) for alpha in orders])
    else:
        raise invalid("event.kind", event.kind, "a release with a Renyi curve")
    curve.setflags(write=False)
    return curve


def sampled_divergence(noise: float, rate: float, alpha: float) -> float:
    """Of normal noise over a Poisson sample: log E (1 - q + q exp((2x - 1)/(2 z^2)))^alpha / (alpha - 1), x normal with
    deviation z (Mironov, Talwar, Zhang 2019, theorems 4 and 5), by the trapezoidal rule.

    The integrand is analytic within pi z^2 of the real line, so the rule's error falls like exp(-2 pi min(z, pi z^2) /
    step) (Trefethen and Weideman 2014, theorem 5.1): far below what is added for rounding, 1e-9 of the divergence and
    1e-13. For very little noise, the curve without sampling stands for it, which is no smaller.
    """
    if (alpha - 1) * alpha / (2 * noise**2) > _LARGEST_EXPONENT:
        return math.inf
    if noise < _LITTLE_NOISE:
        return alpha / (2 * noise**2)
    step = min(noise, noise**2) / 8
    low, high = -12 * noise, alpha + 12 * noise
    x = np.arange(math.floor(low / step), math.ceil(high / step) + 1) * step
    exponents = alpha * np.logaddexp(math.log1p(-rate), math.log(rate) + (2 * x - 1) / (2 * noise**2))
    exponents -= x**2 / (2 * noise**2)
    peak = float(exponents.max())
    total = math.log(float(np.exp(exponents - peak).sum()) * step / (noise * math.sqrt(2 * math.pi))) + peak
    return max(0.0, total) / (alpha - 1) * (1 + 1e-9) + 1e-13


def _laplace_curve(epsilon: float, alphas: Curve) -> Curve:
    """Of Laplace noise (Mironov 2017, proposition 6): log(t e^((a-1) eps) + (1 - t) e^(-a eps)) / (a - 1) with
    t = a / (2a - 1). Where the exponents are small the two terms nearly cancel: then in terms of exp(x) - 1."""
    share = alphas / (2 * alphas - 1)
    up, down = (alphas - 1) * epsilon, -alphas * epsilon
    small = up < 1
    curve = np.empty_like(alphas)
    curve[small] = np.log1p(share[small] * np.expm1(up[small]) + (1 - share[small]) * np.expm1(down[small]))
    large = ~small
    curve[large] = np.logaddexp(np.log(share[large]) + up[large], np.log1p(-share[large]) + down[large])
    return np.asarray(np.clip(curve / (alphas - 1), 0.0, epsilon), dtype=np.float64)


def _pure_curve(epsilon: float, alphas: Curve) -> Curve:
    """Renyi divergence of randomized response, which dominates every mechanism of this epsilon (Kairouz, Oh, Viswanath
    2015): log(p^a q^(1-a) + q^a p^(1-a)) / (a - 1), p = e^eps / (1 + e^eps), q = 1 - p."""
    log_p, log_q = -np.logaddexp(0.0, -epsilon), -np.logaddexp(0.0, epsilon)
    first = alphas * log_p + (1 - alphas) * log_q
    second = alphas * log_q + (1 - alphas) * log_p
    curve = np.maximum(np.logaddexp(first, second) / (alphas - 1), 0.0)
    return np.asarray(np.minimum(curve, epsilon), dtype=np.float64)
