"""FedLTN's server (Mugunthan, 2022, figure 4-1, with the sign of its Algorithm 1).

x' = tau (x + change) + (1 - tau) (x + momentum (x - x_before)): between the mean model and where the last round was
going. In terms of the change that is SGD with rate tau and momentum (1 - tau) momentum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hanse_learning.server.optimizers import Sgd
from hanse_learning.server.reduction import Array


@dataclass(frozen=True, slots=True)
class LookAhead:
    """See the module.

    Attributes:
        jump_start: whether the first round's model is the winner's as it is.
    """

    tau: float
    momentum: float
    jump_start: bool = False

    @property
    def state(self) -> Mapping[str, float]:
        return self.later.state

    @property
    def later(self) -> Sgd:
        """What it is in every round but that of the jump-start."""
        return Sgd(self.tau, (1 - self.tau) * self.momentum)

    def step(self, model: Array, change: Array, state: Mapping[str, Array], round: int) -> None:  # noqa: A002
        """See `ServerOptimizer.step`."""
        if self.jump_start and round == 1:
            np.add(model, change, out=model)
        else:
            self.later.step(model, change, state, round)
