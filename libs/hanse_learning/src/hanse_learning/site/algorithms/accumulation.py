"""Weighted gradient accumulation: early steps, nearer to the shared model, count more.

Source: Nasirigerdeh, Rueckert and Kaissis, 2023, equation (8).

Of t steps the weights are t, then t / 2 falling evenly to 1: 5, 2.5, 2, 1.5, 1. Local steps are plain ones; what is
sent is the weighted sum of the changes that they made.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from hanse_learning.site.algorithms.common import loss_of, run, trained
from hanse_learning.site.losses import LossOf
from hanse_learning.site.session import Session, Trained, copies
from hanse_learning.site.training import LocalSteps, length_of


def step_weight(step: int, total: int) -> float:
    """alpha of a step, from 1, of `total`. Two steps have 2 and 1, where the formula divides by zero."""
    if step == 1 or total <= 2:
        return float(total + 1 - step)
    return total / 2 + (step - 2) * (1 - total / 2) / (total - 2)


class _Accumulating(LocalSteps):
    def __init__(self, module: nn.Module, loss: LossOf, moving: Mapping[str, nn.Parameter], total: int) -> None:
        super().__init__(module, loss)
        self._moving, self._total = moving, total
        self._before = copies(moving)
        self._sum = {name: torch.zeros_like(each) for name, each in self._before.items()}

    @torch.no_grad()
    def taken(self, step: int) -> None:
        """See `LocalSteps`."""
        weight = step_weight(step, self._total)
        for name, parameter in self._moving.items():
            self._sum[name].add_(parameter - self._before[name], alpha=weight)
            self._before[name].copy_(parameter)

    @torch.no_grad()
    def finish(self, received: Mapping[str, torch.Tensor]) -> None:
        """Put the module where the weighted sum leads."""
        for name, parameter in self._moving.items():
            parameter.copy_(received[name]).add_(self._sum[name])


def train(session: Session) -> Trained:
    """See `registry.train_round`."""
    shared = session.shared()
    received = copies(shared)
    total, _ = length_of(session.config, len(session.data))
    local = _Accumulating(session.module, loss_of(session), shared, total)
    made = run(session, local)
    local.finish(received)
    return trained(made)
