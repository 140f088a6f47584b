"""Krum and Multi-Krum: updates that have enough others near them (Blanchard et al., NeurIPS 2017).

An update's score is the sum of its squared distances to the K - f - 2 updates nearest to it, f being how many may be
hostile. Krum takes the update of the least score, Multi-Krum the mean of the m least. Equal scores are decided by the
order of the participants' names. Weights do not count: a hostile site could claim any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hanse_learning.server.gram import GRAM, gram_of, squared_distances
from hanse_learning.server.reduction import Array, Rows
from hanse_learning.server.weighted_mean import WeightedMean


@dataclass(frozen=True, slots=True)
class Krum:
    """The mean of the updates of the `keep` least scores; Krum itself is keep = 1, None all but `byzantine`."""

    byzantine: int
    keep: int | None = 1

    def measure(self, updates: Rows) -> Mapping[str, Array]:
        """See `Measured.measure`."""
        return {GRAM: gram_of(updates)}

    def reweigh(self, totals: Mapping[str, Array], weights: Array, info: Mapping[str, Array]) -> Array:  # noqa: ARG002
        """See `Reweighed.reweigh`: equal weights for those who are chosen."""
        count = len(weights)
        keep = count - self.byzantine if self.keep is None else self.keep
        found = scores(squared_distances(totals[GRAM]), self.byzantine)
        return equal_weights(count, np.argsort(found, kind="stable")[:keep])

    def combine(self, updates: Rows, weights: Array, out: Array) -> None:
        """See `Reduction.combine`; updates K x (n,), weights (K,), out (n,)."""
        WeightedMean().combine(updates, weights, out)


def scores(distances: Array, byzantine: int) -> Array:
    """(K,) sums of each update's K - byzantine - 2 least squared distances to others (one at least).

    Args:
        distances: (K, K), 0 on the diagonal.
    """
    count = len(distances)
    near = max(1, count - byzantine - 2)
    others = distances.copy()
    np.fill_diagonal(others, np.inf)
    others.sort(axis=1)
    return np.asarray(others[:, :near].sum(axis=1))


def equal_weights(count: int, chosen: Array) -> Array:
    """(count,) float64 that sum to 1 over `chosen`, indices, and are 0 elsewhere."""
    weights = np.zeros(count)
    weights[chosen] = 1 / len(chosen)
    return weights
