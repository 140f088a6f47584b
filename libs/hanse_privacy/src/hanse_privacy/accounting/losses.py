"""Privacy loss distributions of normal noise and their sums: dp-accounting's, to the bit, in half of its time.

What it asks for each point of a grid, one after another, is asked here for all of them together.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_TRUNCATED = 1e-15
"""Of a sum's mass, what lies so far out that it is taken for infinity."""
_ADDED_ONE_BY_ONE, _FEW = 9, 1000
"""Distributions and points of their sum, up to which dp-accounting keeps those points alone that have some mass."""
_ORDERS = np.concatenate((np.arange(-20, 0), np.arange(1, 21)))


def of_normal(amount: float, rate: float, width: float) -> Any:
    """`from_gaussian_mechanism(amount, sampling_prob=rate, value_discretization_interval=width)`."""
    from dp_accounting.pld import privacy_loss_distribution as made
    from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType

    def one(adjacency: Any) -> Any:
        loss = _normal_loss()(amount, sampling_prob=rate, adjacency_type=adjacency)
        return made._create_pld_pmf_from_monotone_privacy_loss(
            loss, value_discretization_interval=width, use_connect_dots=True
        )

    removed = one(AdjacencyType.REMOVE)
    return made.PrivacyLossDistribution(removed, *([] if rate == 1 else [one(AdjacencyType.ADD)]))


@cache
def _normal_loss() -> Any:
    from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

    class NormalLoss(GaussianPrivacyLoss):  # type: ignore[misc]
        def get_delta_for_epsilon(self, epsilon: Any) -> Any:
            losses = np.asarray(epsilon, dtype=float)
            removed = self.adjacency_type == AdjacencyType.REMOVE
            deltas = np.zeros_like(losses)
            reached = np.full(losses.shape, True)
            if self.sampling_prob < 1:
                edge = math.log1p(-self.sampling_prob)
                reached = losses > edge if removed else losses < -edge
                if removed:
                    deltas[~reached] = -np.expm1(losses[~reached])
            inner = losses[reached] if removed else -losses[reached]
            plain = _without_sampling(inner, self.sampling_prob)
            if removed:
                x = self._inverse_privacy_loss_without_subsampling_remove(plain)
            else:
                x = self._inverse_privacy_loss_without_subsampling_add(-plain)
            deltas[reached] = self.mu_upper_cdf(x) - np.exp(losses[reached] + self.mu_lower_log_cdf(x))
            return np.clip(deltas, 0, 1)

    return NormalLoss


def _without_sampling(losses: Array, rate: float) -> Array:
    """log(1 + (exp(loss) - 1) / rate), of losses above log(1 - rate)."""
    if rate == 1:
        return losses
    most, rest = 1 / rate, 1 - 1 / rate
    high, low = losses + np.log(most), np.log(-rest)
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Array = high + np.log1p(-np.exp(low - high))
    found[losses == 0] = np.log(most + rest)
    edge = math.log(1 - rate)
    found[np.abs(losses - edge) <= 1e-9 * np.maximum(np.abs(losses), abs(edge))] = -math.inf
    return found


def added(one: Any, count: int) -> Any:
    """`one.self_compose(count)`."""
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    parts = [one._pmf_remove] if one._symmetric else [one._pmf_remove, one._pmf_add]
    return PrivacyLossDistribution(*[_added(each, count) for each in parts])


def _added(one: Any, count: int) -> Any:
    from dp_accounting.pld.pld_pmf import DensePLDPmf
    from scipy import fft

    if count <= _ADDED_ONE_BY_ONE and one.size**count <= _FEW:
        return one.self_compose(count)
    one = one.to_dense_pmf()
    low, high = _bounds(one._probs, count)
    size = fft.next_fast_len(max(high - low + 1, len(one._probs)))
    whole = np.real(fft.ifft(fft.fft(one._probs, size) ** count))
    masses = np.roll(whole, -low)[: high - low + 1]
    infinite = _TRUNCATED - math.expm1(count * math.log1p(-one._infinity_mass))
    return DensePLDPmf(one._discretization, one._lower_loss * count + low, masses, infinite, one._pessimistic_estimate)


def _bounds(masses: Array, count: int) -> tuple[int, int]:
    """Between which places the sum of `count` has all but `_TRUNCATED` of its mass, by Chernoff's bound."""
    places = np.arange(len(masses))
    low, high = 0, (len(masses) - 1) * count
    for order in _ORDERS / len(masses):
        most = max(0.0, order * (len(masses) - 1))
        moment = np.log(masses @ np.exp(places * order - most)) + most
        bound = (count * moment + math.log(2 / _TRUNCATED)) / order
        if not math.isfinite(bound):
            continue
        if order > 0:
            high = min(high, math.ceil(bound))
        else:
            low = max(low, math.floor(bound))
    return low, high
