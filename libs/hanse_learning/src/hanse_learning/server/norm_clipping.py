"""Clipped mean: updates that are longer than a given length are scaled down to it.

w_k u_k min(1, norm / |u_k|), |u_k| being the L2 norm over all parameters together. It bounds what a single site can do
to the model in one round (Sun et al., Can You Really Backdoor Federated Learning?, 2019).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hanse_learning.server.reduction import TILE, Array, Rows, tiles
from hanse_learning.server.weighted_mean import WeightedMean

SQUARES = "squares"
"""Name of the updates' squared norms among the totals."""


@dataclass(frozen=True, slots=True)
class NormClipping:
    """Weighted mean of updates that are scaled down to `norm` where they are longer."""

    norm: float

    def measure(self, updates: Rows) -> Mapping[str, Array]:
        """See `Measured.measure`."""
        return {SQUARES: squared_norms(updates)}

    def reweigh(self, totals: Mapping[str, Array], weights: Array, info: Mapping[str, Array]) -> Array:  # noqa: ARG002
        """See `Reweighed.reweigh`: the weights do not sum to 1 any more where an update is clipped."""
        return weights * clipping_factors(np.sqrt(totals[SQUARES]), self.norm)

    def combine(self, updates: Rows, weights: Array, out: Array) -> None:
        """See `Reduction.combine`; updates K x (n,), weights (K,), out (n,)."""
        WeightedMean().combine(updates, weights, out)


def squared_norms(updates: Rows) -> Array:
    """(K,) float64 sums of squares over K arrays (n,), made in float64, tile by tile and pairwise within a tile."""
    found = np.zeros(len(updates))
    square = np.empty(min(TILE, len(updates[0])) if updates else 0)
    for index, row in enumerate(updates):
        for part in tiles(len(row)):
            wide = square[: part.stop - part.start]
            wide[...] = row[part]
            np.square(wide, out=wide)
            found[index] += np.add.reduce(wide)
    return found


def clipping_factors(norms: Array, bound: float) -> Array:
    """(K,) min(1, bound / norm); 1 for a norm of 0."""
    return np.minimum(1.0, np.divide(bound, norms, out=np.ones_like(norms), where=norms > 0))
