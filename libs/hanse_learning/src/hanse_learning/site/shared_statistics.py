"""Batch norm by the statistics of all sites' batches together (FedTAN: Wang, Shi and Chang, 2023, algorithms 2 and 3).

Forward, each layer sums twice: the means (39), then the variances about the *global* mean (40). Backward once: the
gradients of the loss with respect to both (41). Site i has weight p_i = n_i / n, n_i the examples in its batch. The
received mean and variance are leaves: the derivative of a variance by its mean is zero over all sites, but not
at one of them, and must not be taken there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hanse_learning.site.modes import BATCH_NORMS
from hanse_learning.site.sums import Floats, Sums


@dataclass(slots=True)
class _Step:
    """One step of one site. `examples` (n_i) are its batch's; `all_examples` (n) come with the first sum."""

    sums: Sums
    examples: int
    backward: bool
    all_examples: float = 0.0

    def mean(self, key: str, *own: Tensor) -> tuple[Tensor, ...]:
        """Means over the sites, by their examples, of float64 vectors of one length (C,)."""
        given = np.concatenate([vector.cpu().numpy() for vector in own]) * self.examples
        first = not self.all_examples
        if first:
            given = np.append(given, float(self.examples))
        total: Floats = self.sums.sum(key, given)
        if first:
            self.all_examples, total = float(total[-1]), total[:-1]
        return torch.from_numpy(total / self.all_examples).to(own[0].device).chunk(len(own))


@dataclass(frozen=True, slots=True)
class _Place:
    """A layer's use in the step: its statistics, and how its gradients are found."""

    step: _Step
    key: str
    eps: float


class _Normalize(torch.autograd.Function):
    """y (n, C, ...) -> normalized, mean (C,) and variance (C,) of all sites, the latter two in float64."""

    @staticmethod
    def forward(
        ctx: Any, y: Tensor, weight: Tensor | None, bias: Tensor | None, place: _Place
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See the class; equations (1), (39), (40)."""
        over = _all_but_channels(y)
        (mean,) = place.step.mean(f"{place.key}-mean", y.mean(over, dtype=torch.float64))
        centred = y - _along(mean, y)
        (variance,) = place.step.mean(f"{place.key}-var", centred.square().mean(over, dtype=torch.float64))
        inverse = (variance + place.eps).rsqrt()
        made = centred * _along(inverse, y)
        if weight is not None:
            made = made * _along(weight, y)
        if bias is not None:
            made = made + _along(bias, y)
        ctx.save_for_backward(centred, inverse, weight)
        ctx.place = place
        ctx.mark_non_differentiable(mean, variance)
        return made, mean, variance

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Equations (25), (28) and (41), then (62)."""
        u = grads[0]
        centred, inverse, weight = ctx.saved_tensors
        place: _Place = ctx.place
        over = _all_but_channels(u)
        scale = inverse if weight is None else inverse * weight.double()  # (C,)
        by_bias = u.sum(over, dtype=torch.float64)
        by_centred = (u * centred).sum(over, dtype=torch.float64)
        # The loss is a mean over the site's batch already, and with it its gradients.
        by_mean, by_variance = -scale * by_bias, -0.5 * inverse.square() * scale * by_centred
        if place.step.backward:
            by_mean, by_variance = place.step.mean(f"{place.key}-grad", by_mean, by_variance)
        elements = centred.numel() // centred.shape[1]
        by_y = u * _along(scale, u)
        by_y += _along(by_mean / elements, u)
        by_y += centred * _along(2 * by_variance / elements, u)
        by_weight = None if weight is None else (by_centred * inverse).to(weight.dtype)
        return by_y, by_weight, by_bias.to(u.dtype) if ctx.needs_input_grad[2] else None, None


@contextmanager
def shared_statistics(module: nn.Module, sums: Sums, examples: int, *, backward: bool = True) -> Iterator[None]:
    """Within it, the module's batch norms in training mode take part in sums over all sites: for one forward and
    backward pass over a batch.

    Moving averages are moved by the global statistics, as a pooled batch's would be.

    Args:
        examples: in this site's batch.
        backward: whether the gradients of the statistics are summed, too; without, each site uses its own.
    """
    step = _Step(sums, examples, backward)
    layers = [part for part in module.modules() if isinstance(part, BATCH_NORMS) and part.training]
    for number, layer in enumerate(layers):
        layer.__dict__["forward"] = partial(_forward, layer, step, f"l{number}", [])
    try:
        yield
    finally:
        for layer in layers:
            del layer.__dict__["forward"]


def _forward(layer: nn.modules.batchnorm._BatchNorm, step: _Step, key: str, uses: list[None], y: Tensor) -> Tensor:
    uses.append(None)
    # A layer that a module uses twice has statistics of its own for each use.
    place = _Place(step, key if len(uses) == 1 else f"{key}-u{len(uses)}", layer.eps)
    made, mean, variance = _Normalize.apply(y, layer.weight, layer.bias, place)  # type: ignore[no-untyped-call]
    _move(layer, mean, variance, step.all_examples * (y.numel() // (y.shape[0] * y.shape[1])))
    return made  # type: ignore[no-any-return]


@torch.no_grad()
def _move(layer: nn.modules.batchnorm._BatchNorm, mean: Tensor, variance: Tensor, elements: float) -> None:
    """Equation (6) with the global statistics; `elements` of a channel over all sites, as torch has it unbiased."""
    if layer.num_batches_tracked is not None:
        layer.num_batches_tracked.add_(1)
    if layer.running_mean is None or layer.running_var is None:
        return
    counted = 1 if layer.num_batches_tracked is None else int(layer.num_batches_tracked)
    share = layer.momentum if layer.momentum is not None else 1.0 / counted
    unbiased = variance * (elements / (elements - 1)) if elements > 1 else variance
    for moving, now in ((layer.running_mean, mean), (layer.running_var, unbiased)):
        moving.mul_(1 - share).add_(now.to(moving.dtype), alpha=share)


def _all_but_channels(y: Tensor) -> tuple[int, ...]:
    return (0, *range(2, y.dim()))


def _along(vector: Tensor, y: Tensor) -> Tensor:
    """(C,) so that it broadcasts over y (n, C, ...), in y's dtype."""
    return vector.to(y.dtype).reshape(1, -1, *[1] * (y.dim() - 2))
