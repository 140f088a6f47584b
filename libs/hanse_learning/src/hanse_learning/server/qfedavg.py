"""q-FedAvg (Li et al., Fair Resource Allocation in Federated Learning, ICLR 2020): a greater loss counts for more.

With F_k the received model's loss at site k, u_k its update and L = 1 / lr, the change is
sum_k w_k F_k^q L u_k / sum_k w_k h_k, h_k = q F_k^(q-1) |L u_k|^2 + L F_k^q (Algorithm 2; uniform w there). The loss is
counted as 1e-10 more, so that 0 has all powers. q = 0 is the weighted mean to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hanse_fabric.errors import invalid
from hanse_learning.server.norm_clipping import SQUARES, squared_norms
from hanse_learning.server.reduction import Array, Rows
from hanse_learning.server.weighted_mean import WeightedMean

FIRST_LOSS = "first_loss"
"""The received model's loss among the numbers that come with an update."""

_LEAST_LOSS = 1e-10


@dataclass(frozen=True, slots=True)
class QFedAvg:
    """The mean of updates weighted by the q-th power of the loss, with the step of the paper."""

    q: float
    lr: float

    def measure(self, updates: Rows) -> Mapping[str, Array]:
        """See `Measured.measure`."""
        return {SQUARES: squared_norms(updates)}

    def reweigh(self, totals: Mapping[str, Array], weights: Array, info: Mapping[str, Array]) -> Array:
        """See `Reweighed.reweigh`.

        Raises:
            HanseError: INVALID_INPUT unless every update comes with a `first_loss` that is not negative.
        """
        if not self.q:
            return weights
        losses = info.get(FIRST_LOSS)
        if losses is None or not (losses >= 0).all():
            given = None if losses is None else losses.tolist()
            raise invalid("updates.info.first_loss", given, "a number from 0 with every update, which qfedavg needs")
        # Everything is divided by the greatest loss's power: nothing overflows, and the ratio stays.
        raised = losses + _LEAST_LOSS
        greatest = raised.max()
        powers = (raised / greatest) ** self.q
        steps = self.q * powers / raised * totals[SQUARES] / self.lr + powers
        return np.asarray(weights * powers / (weights @ steps))

    def combine(self, updates: Rows, weights: Array, out: Array) -> None:
        """See `Reduction.combine`; updates K x (n,), weights (K,), out (n,)."""
        WeightedMean().combine(updates, weights, out)
