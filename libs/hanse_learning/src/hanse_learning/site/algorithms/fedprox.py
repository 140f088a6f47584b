"""FedProx (Li et al., 2020): every step is pulled towards the received model, by mu times the distance."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from hanse_fabric.errors import invalid
from hanse_learning.config import FedProxConfig
from hanse_learning.site.algorithms.common import loss_of
from hanse_learning.site.algorithms.plain import train_with
from hanse_learning.site.losses import LossOf
from hanse_learning.site.session import Session, Trained, copies
from hanse_learning.site.training import LocalSteps


class Proximal(LocalSteps):
    """The gradient of loss + strength / 2 |w - anchor|^2."""

    def __init__(
        self, module: nn.Module, loss: LossOf, moving: Mapping[str, nn.Parameter], anchor: Mapping[str, Tensor],
        strength: float,
    ) -> None:  # fmt: skip
        super().__init__(module, loss)
        self._pairs = [(parameter, anchor[name]) for name, parameter in moving.items()]
        self._strength = strength

    @torch.no_grad()
    def adjust(self) -> None:
        """See `LocalSteps`."""
        if self._strength:
            for parameter, anchor in self._pairs:
                if parameter.grad is not None:
                    parameter.grad.add_(parameter - anchor, alpha=self._strength)

    @property
    def pull(self) -> float:
        """See `LocalSteps`."""
        return self._strength


def train(session: Session) -> Trained:
    """See `registry.train_round`."""
    algorithm = session.config.algorithm
    if not isinstance(algorithm, FedProxConfig):
        raise invalid("train.algorithm.name", algorithm.name, "fedprox")
    shared = session.shared()
    local = Proximal(session.module, loss_of(session), shared, copies(shared), algorithm.mu)
    return train_with(session, local, resumes=True)
