"""SCAFFOLD (Karimireddy et al., 2020): each step is corrected by how far the site drifts from the others.

Each step goes along g - c_i + c: c_i is the site's control variate, kept here, c the server's, which comes with the
task. A site's new variate is its gradient at the received model, or the distance that it went, per step. With momentum
a gradient acts in later steps, too, so the distance is divided by the total weight of all gradients in it, not by the
number of steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from hanse_fabric.errors import invalid
from hanse_learning.config import ScaffoldConfig
from hanse_learning.site.algorithms.common import full_gradient, loss_of, run, trained
from hanse_learning.site.losses import LossOf
from hanse_learning.site.schedule import rate_factor
from hanse_learning.site.session import Session, Trained, arrays, copies, require_kept
from hanse_learning.site.training import LocalSteps

CONTROL = "control"


class Corrected(LocalSteps):
    """Gradients with a constant added to each."""

    def __init__(
        self, module: nn.Module, loss: LossOf, moving: Mapping[str, nn.Parameter], added: Mapping[str, Tensor]
    ) -> None:
        super().__init__(module, loss)
        self._pairs = [(parameter, added[name]) for name, parameter in moving.items()]

    @torch.no_grad()
    def adjust(self) -> None:
        """See `LocalSteps`."""
        for parameter, added in self._pairs:
            if parameter.grad is not None:
                parameter.grad.add_(added)


def train(session: Session) -> Trained:
    """See `registry.train_round`.

    Raises:
        HanseError: CONFLICT where the site's variate was lost: the server's is the mean of all, this one's included.
    """
    config = session.config
    if not isinstance(config.algorithm, ScaffoldConfig):
        raise invalid("train.algorithm.name", config.algorithm.name, "scaffold")
    require_kept(session, "control variate")
    shared = session.shared()
    zeros = {name: torch.zeros_like(parameter) for name, parameter in shared.items()}
    own = session.kept_as(CONTROL, shared) or zeros
    server = session.came_with(CONTROL, shared) or zeros
    received = copies(shared)
    renewed = full_gradient(session, shared) if config.algorithm.option == "gradient" else None
    added = {name: server[name] - own[name] for name in shared}
    made = run(session, Corrected(session.module, loss_of(session), shared, added))
    if renewed is None:
        if made.normalizer is None:
            raise invalid("train.optimizer.name", config.optimizer.name, "sgd, which scaffold's variates are made by")
        way = config.optimizer.lr * rate_factor(config.schedule, session.round, 1) * made.normalizer
        renewed = {
            name: (received[name] - parameter.detach()).div_(way).sub_(added[name])
            for name, parameter in shared.items()
        }
    change = {name: renewed[name] - own[name] for name in shared}
    return replace(trained(made), extras={CONTROL: arrays(change)}, keep={CONTROL: arrays(renewed)})
