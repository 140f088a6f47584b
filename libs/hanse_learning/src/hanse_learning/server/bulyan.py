"""Bulyan (El Mhamdi et al., ICML 2018): Krum chooses updates, and each coordinate becomes a trimmed mean of them.

Of K >= 4 f + 3 updates, theta = K - 2 f are chosen one after another by Krum among those that are left. Each coordinate
is the mean of the beta = theta - 2 f chosen values nearest to their median. Sorted, these lie beside each other, so
that the window is moved up as long as the value above it is nearer than the lowest within. Weights do not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hanse_learning.server.gram import GRAM, gram_of, squared_distances
from hanse_learning.server.krum import equal_weights, scores
from hanse_learning.server.order_statistics import mean_of, sorted_tiles
from hanse_learning.server.reduction import Array, Rows


@dataclass(frozen=True, slots=True)
class Bulyan:
    """The mean of the values nearest to the median, of updates that Krum chooses."""

    byzantine: int

    def measure(self, updates: Rows) -> Mapping[str, Array]:
        """See `Measured.measure`."""
        return {GRAM: gram_of(updates)}

    def reweigh(self, totals: Mapping[str, Array], weights: Array, info: Mapping[str, Array]) -> Array:  # noqa: ARG002
        """See `Reweighed.reweigh`: equal weights for those who are chosen."""
        count = len(weights)
        distances = squared_distances(totals[GRAM])
        left = list(range(count))
        chosen = []
        for _ in range(count - 2 * self.byzantine):
            best = int(np.argmin(scores(distances[np.ix_(left, left)], self.byzantine)))
            chosen.append(left.pop(best))
        return equal_weights(count, np.array(chosen))

    def combine(self, updates: Rows, weights: Array, out: Array) -> None:
        """See `Reduction.combine`; updates K x (n,), weights (K,), out (n,): rows of weight 0 are left out."""
        chosen = [row for row, weight in zip(updates, weights, strict=True) if weight]
        count = len(chosen)
        # Bits do not depend on the weights' scale; who calls without having reweighed gets all rows.
        beta = max(1, count - 2 * self.byzantine)
        for total, rows in sorted_tiles(chosen, out):
            _mean_of_nearest(rows, beta, total)


def _mean_of_nearest(rows: list[Array], beta: int, out: Array) -> None:
    """out (n,) = mean of the `beta` values of each column nearest to its median; `rows` are sorted, and changed."""
    count = len(rows)
    half = out.dtype.type(0.5)
    median = rows[(count - 1) // 2] * half + rows[count // 2] * half
    above, below = np.empty_like(out), np.empty_like(out)
    for low in range(count - beta):
        # Values up to `median` come nearer and those above go away: once the window stays, it stays for good. So a
        # slot holds what came into it last, and the rows from beta on are still as they were.
        np.subtract(rows[low + beta], median, out=above)
        np.subtract(median, rows[low], out=below)
        np.copyto(rows[low % beta], rows[low + beta], where=above < below)
    mean_of(rows[:beta], out)
