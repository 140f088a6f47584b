"""MOON (Li et al., 2021): representations are drawn to the received model's, and away from the site's former model's.

    loss + mu * mean of -log( e^(sim(z, z_received) / T) / (e^(sim(z, z_received) / T) + e^(sim(z, z_former) / T)) )

with cosine similarities; z is what the output layer takes. A site's first round has no former model, and no such term.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from torch import Tensor, nn

from hanse_fabric.errors import invalid
from hanse_learning.config import MoonConfig
from hanse_learning.site.algorithms.common import loss_of, run, trained
from hanse_learning.site.losses import LossOf
from hanse_learning.site.session import Session, Trained, arrays
from hanse_learning.site.state_policy import OUTPUT
from hanse_learning.site.training import LocalSteps

FORMER = "former"


class _Representing:
    """A module, and what its output layer was given last."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.seen = torch.empty(0)
        self.handle = module.get_submodule(OUTPUT).register_forward_pre_hook(self._see)

    def _see(self, _layer: nn.Module, given: tuple[Tensor, ...]) -> None:
        self.seen = given[0]

    def of(self, x: Tensor) -> Tensor:
        """Representations (n, d), without gradients."""
        with torch.no_grad():
            self.module(x)
        return self.seen


class _Contrastive(LocalSteps):
    def __init__(
        self, module: nn.Module, loss: LossOf, received: nn.Module, former: nn.Module, config: MoonConfig
    ) -> None:
        super().__init__(module, loss)
        self._own = _Representing(module)
        self._received, self._former = _Representing(received), _Representing(former)
        self._config = config

    def gradients(self, x: Tensor, y: Tensor) -> Tensor:
        """See `LocalSteps`."""
        loss = self.loss_of(self.module(x), y)
        own = self._own.seen
        near, far = (
            nn.functional.cosine_similarity(own, other.of(x), dim=1) for other in (self._received, self._former)
        )
        contrast = nn.functional.softplus((far - near) / self._config.temperature).mean()
        loss = loss + self._config.mu * contrast
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def close(self) -> None:
        self._own.handle.remove()


def train(session: Session) -> Trained:
    """See `registry.train_round`."""
    algorithm = session.config.algorithm
    if not isinstance(algorithm, MoonConfig):
        raise invalid("train.algorithm.name", algorithm.name, "moon")
    module, measure = session.module, loss_of(session)
    former = session.kept_as(FORMER, module.state_dict())
    if former is None or algorithm.mu == 0:
        made = run(session, LocalSteps(module, measure), resumes=True)
    else:
        received, before = copy.deepcopy(module).eval(), copy.deepcopy(module).eval()
        before.load_state_dict(former)
        local = _Contrastive(module, measure, received, before, algorithm)
        try:
            made = run(session, local, resumes=True)
        finally:
            local.close()
    note = "the site's former model was lost; this round was trained without it" if session.lost else ""
    return replace(trained(made), keep={FORMER: arrays(module.state_dict())}, note=note)
