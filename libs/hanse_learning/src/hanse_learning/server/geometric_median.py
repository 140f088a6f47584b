"""The geometric median of the updates: z that minimizes sum_k w_k |z - u_k|.

Smoothed Weiszfeld iteration (Pillutla, Kakade, Harchaoui: Robust Aggregation for Federated Learning, 2022): z is the
mean of the updates weighted by w_k / max(nu, |z - u_k|). As z = sum_k a_k u_k with sum_k a_k = 1 throughout, with D the
squared distances, |z - u_k|^2 = (D a)_k - a^T D a / 2: the iteration needs (K, K) numbers and no update. Up to half of
the weight may be hostile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hanse_learning.server.gram import GRAM, gram_of, squared_distances
from hanse_learning.server.reduction import Array, Rows
from hanse_learning.server.weighted_mean import WeightedMean

_STILL = 1e-12
"""Change of the weights at which the iteration stops."""


@dataclass(frozen=True, slots=True)
class GeometricMedian:
    """The point of the least weighted sum of distances; `smoothing` is the least distance that counts."""

    smoothing: float
    iterations: int

    def measure(self, updates: Rows) -> Mapping[str, Array]:
        """See `Measured.measure`."""
        return {GRAM: gram_of(updates)}

    def reweigh(self, totals: Mapping[str, Array], weights: Array, info: Mapping[str, Array]) -> Array:  # noqa: ARG002
        """See `Reweighed.reweigh`."""
        distances = squared_distances(totals[GRAM])
        found = weights
        for _ in range(self.iterations):
            spread = distances @ found
            lengths = np.sqrt(np.maximum(spread - found @ spread / 2, 0.0))
            pulled = weights / np.maximum(lengths, self.smoothing)
            before, found = found, pulled / pulled.sum()
            if np.abs(found - before).max() <= _STILL:
                break
        return found

    def combine(self, updates: Rows, weights: Array, out: Array) -> None:
        """See `Reduction.combine`; updates K x (n,), weights (K,), out (n,)."""
        WeightedMean().combine(updates, weights, out)
