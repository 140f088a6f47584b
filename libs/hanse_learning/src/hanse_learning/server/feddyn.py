"""The server's half of FedDyn (Acar et al., Federated Learning Based on Dynamic Regularization, ICLR 2021).

Algorithm 1: h <- h - alpha (|P| / m) mean_P(theta_k - theta); theta <- mean_P theta_k - h / alpha. The state kept here
is -h / alpha, in which alpha cancels: it belongs to the sites' half, which must have the one of the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hanse_learning.server.reduction import Array


@dataclass(frozen=True, slots=True)
class FedDyn:
    """c += share change; x += change + c, where `share` is |P| / m."""

    share: float

    @property
    def state(self) -> Mapping[str, float]:
        return {"correction": 0.0}

    def step(self, model: Array, change: Array, state: Mapping[str, Array], round: int) -> None:  # noqa: A002, ARG002
        """See `ServerOptimizer.step`."""
        correction = state["correction"]
        np.add(correction, np.multiply(change, self.share), out=correction)
        np.add(change, correction, out=change)
        np.add(model, change, out=model)
