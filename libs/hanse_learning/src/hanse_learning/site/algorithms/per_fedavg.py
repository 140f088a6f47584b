"""Per-FedAvg (Fallah et al., 2020): a model that is good after a step of a site's own.

A step takes the gradient v at w~ = w - alpha grad f(w; D), on the step's batch. The first-order variant descends along
v. The other one has the Hessian's part too, by a finite difference on a third batch:

    v - alpha (grad f(w + d v; D'') - grad f(w - d v; D'')) / (2 d)

The batches of D and D'' have an order of their own, so that with alpha = 0 the steps are those of plain training.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from hanse_fabric.errors import invalid
from hanse_learning.config import PerFedAvgConfig, TrainConfig
from hanse_learning.site.algorithms.common import examples, loss_of, run, trained
from hanse_learning.site.losses import LossOf
from hanse_learning.site.modes import set_training
from hanse_learning.site.session import Session, Trained, copies
from hanse_learning.site.training import LocalSteps, batches, require_examples

_ENDLESS = 1 << 62
_OFFSET = 1 << 40
"""Of the inner batches' seed from the session's."""

Batches = Iterator[tuple[Tensor, Tensor]]


class _Meta(LocalSteps):
    def __init__(
        self, module: nn.Module, loss: LossOf, moving: Mapping[str, nn.Parameter], inner: Batches,
        config: PerFedAvgConfig,
    ) -> None:  # fmt: skip
        super().__init__(module, loss)
        self._moving, self._inner, self._config = moving, inner, config

    def gradients(self, x: Tensor, y: Tensor) -> Tensor:
        """See `LocalSteps`."""
        alpha = self._config.alpha
        if alpha == 0:
            return super().gradients(x, y)
        start = copies(self._moving)
        step = self._at(*next(self._inner))
        self._place(start, step, -alpha)
        self.module.zero_grad(set_to_none=True)
        loss = super().gradients(x, y)
        outer = {name: each.grad.clone() for name, each in self._moving.items() if each.grad is not None}
        if self._config.variant == "hf":
            curved = self._curvature(start, outer)
            outer = {name: torch.sub(each, curved[name], alpha=alpha) for name, each in outer.items()}
        self._place(start, {}, 0.0)
        for name, gradient in outer.items():
            self._moving[name].grad = gradient
        return loss

    def _curvature(self, start: Mapping[str, Tensor], direction: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The Hessian times `direction`, by a central difference (zeros for no direction)."""
        norms = [torch.linalg.vector_norm(each) for each in direction.values()]
        norm = float(torch.linalg.vector_norm(torch.stack(norms))) if norms else 0.0
        if norm == 0:
            return {name: torch.zeros_like(each) for name, each in direction.items()}
        # The cube root of the precision, relative to the direction, weighs rounding against the third derivative.
        width = float(torch.finfo(norms[0].dtype).eps) ** (1 / 3) / norm
        batch = next(self._inner)
        sides = []
        for sign in (1.0, -1.0):
            self._place(start, direction, sign * width)
            sides.append(self._at(*batch))
        plus, minus = sides
        return {name: (plus[name] - minus[name]) / (2 * width) for name in direction}

    def _at(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """The gradients of a batch at the module's present values."""
        self.module.zero_grad(set_to_none=True)
        super().gradients(x, y)
        return {
            name: torch.zeros_like(each) if each.grad is None else each.grad.clone()
            for name, each in self._moving.items()
        }

    @torch.no_grad()
    def _place(self, start: Mapping[str, Tensor], direction: Mapping[str, Tensor], length: float) -> None:
        for name, parameter in self._moving.items():
            parameter.copy_(start[name])
            if name in direction:
                parameter.add_(direction[name], alpha=length)


def train(session: Session) -> Trained:
    """See `registry.train_round`."""
    algorithm = _algorithm(session.config)
    x, y = examples(session)
    inner = _inner(x, y, session.config, (session.seed + _OFFSET) % 2**63)
    moving = session.shared() | session.own()
    return trained(run(session, _Meta(session.module, loss_of(session), moving, inner, algorithm)))


def adapt(session: Session) -> str:
    """See `registry.adapt`: the received model after some steps on the site's training examples."""
    algorithm = _algorithm(session.config)
    if not algorithm.adapt_steps or algorithm.alpha == 0:
        return ""
    require_examples(session.data)
    x, y = examples(session)
    inner = _inner(x, y, session.config, session.seed)
    local = LocalSteps(session.module, loss_of(session))
    set_training(session.module)
    for _ in range(algorithm.adapt_steps):
        session.module.zero_grad(set_to_none=True)
        local.gradients(*next(inner))
        with torch.no_grad():
            for parameter in session.module.parameters():
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad, alpha=algorithm.alpha)
    session.module.zero_grad(set_to_none=True)
    return ""


def _algorithm(config: TrainConfig) -> PerFedAvgConfig:
    if not isinstance(config.algorithm, PerFedAvgConfig):
        raise invalid("train.algorithm.name", config.algorithm.name, "per_fedavg")
    return config.algorithm


def _inner(x: Tensor, y: Tensor, config: TrainConfig, seed: int) -> Batches:
    generator = torch.Generator().manual_seed(seed)
    for batch in batches(len(x), config.batch_size, _ENDLESS, generator):
        yield x[batch], y[batch]
