"""SCAFFOLD (Karimireddy et al., 2020): each step is corrected by how far the site drifts from the others.

Each step goes along g - c_i + c: c_i is the site's control variate, kept here, c the server's, which comes with the
task. A site's new variate is its gradient at the received model, or the distance that it went, per step. With momentum
a gradient acts in later steps, too, so the distance is divided by the total weight of all gradients in it, not by the
number of steps.

DP-SCAFFOLD (Noble, Bellet and Dieuleveut, 2022) takes the clipped and noisy gradients of `dp_sgd` instead: a variate is
then made of the update, which has its noise, and of earlier variates, so that it tells nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from hanse_fabric.errors import invalid
from hanse_learning.config import ScaffoldConfig, SgdConfig
from hanse_learning.site.algorithms.common import full_gradient, loss_of, run, trained
from hanse_learning.site.losses import LossOf
from hanse_learning.site.schedule import rate_factor
from hanse_learning.site.session import Session, Trained, arrays, copies, require_kept
from hanse_learning.site.training import LocalSteps

CONTROL = "control"
_PRIVATE = "control by dp_sgd"
"""What is kept of private rounds alone: no noise covers what other rounds of the run have left."""


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
    variates = _Variates.of(session, CONTROL)
    renewed = full_gradient(session, session.shared()) if config.algorithm.option == "gradient" else None
    made = run(session, Corrected(session.module, loss_of(session), session.shared(), variates.added))
    if renewed is None:
        if made.normalizer is None:
            raise invalid("train.optimizer.name", config.optimizer.name, "sgd, which scaffold's variates are made by")
        first = rate_factor(config.schedule, session.round, 1)
        renewed = variates.by_way(session, config.optimizer.lr * first * made.normalizer)
    return replace(trained(made), **variates.told(renewed))


def train_privately(
    session: Session, steps: int, descend: Callable[[Mapping[str, Tensor]], dict[str, float]]
) -> Trained:
    """DP-SCAFFOLD.

    Args:
        steps: that `descend` takes, with its argument added to each noisy gradient.

    Raises:
        HanseError: as `train`; INVALID_INPUT for what would make variates of more than noisy gradients, each of one
            weight: another option than `drift`, momentum, an average of weights.
    """
    config = session.config
    if not isinstance(config.algorithm, ScaffoldConfig) or config.algorithm.option != "drift":
        raise invalid("train.algorithm", config.algorithm.name, "scaffold of option drift, with dp_sgd")
    if not isinstance(config.optimizer, SgdConfig) or config.optimizer.momentum:
        raise invalid("train.optimizer", config.optimizer.name, "sgd without momentum, with scaffold and dp_sgd")
    if config.weights_average is not None:
        raise invalid("train.weights_average", config.weights_average, "none, with scaffold")
    variates = _Variates.of(session, _PRIVATE)
    metrics = descend(variates.added)
    way = sum(rate_factor(config.schedule, session.round, step) for step in range(1, steps + 1))
    renewed = variates.by_way(session, config.optimizer.lr * way)
    return Trained(metrics=metrics, info={}, **variates.told(renewed))


@dataclass(frozen=True, slots=True)
class _Variates:
    """What the round begins with, by parameter: the site's variate (kept as `group`), what is added to each gradient,
    and the model."""

    group: str
    own: dict[str, Tensor]
    added: dict[str, Tensor]
    received: dict[str, Tensor]

    @classmethod
    def of(cls, session: Session, group: str) -> Self:
        require_kept(session, "control variate")
        shared = session.shared()
        zeros = {name: torch.zeros_like(parameter) for name, parameter in shared.items()}
        own = session.kept_as(group, shared) or zeros
        server = session.came_with(CONTROL, shared) or zeros
        return cls(group, own, {name: server[name] - own[name] for name in shared}, copies(shared))

    def by_way(self, session: Session, way: float) -> dict[str, Tensor]:
        """The variate by the distance that was gone at rates whose sum is `way`."""
        return {
            name: (self.received[name] - parameter.detach()).div_(way).sub_(self.added[name])
            for name, parameter in session.shared().items()
        }

    def told(self, renewed: Mapping[str, Tensor]) -> dict[str, Any]:
        """What leaves, and what is kept, as `Trained` has it."""
        change = {name: renewed[name] - self.own[name] for name in self.own}
        return {"extras": {CONTROL: arrays(change)}, "keep": {self.group: arrays(renewed)}}
