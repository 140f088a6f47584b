"""Single gradients of KNConv for those who train with Opacus (Yousefpour et al., 2021) instead of `dp_sgd`."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from hanse_learning.site.example_gradients import gradients_of_layer
from hanse_learning.site.layers import KNConv1d, KNConv2d, KNConv3d

_KINDS = (KNConv1d, KNConv2d, KNConv3d)


def prepare(module: nn.Module) -> nn.Module:
    """The module, whose kernel-normalized convolutions Opacus then knows. To be called before Opacus wraps it.

    What Opacus does by itself, a second forward pass of a layer, would draw other masks of dropout.

    Raises:
        ImportError: where Opacus is not installed.
    """
    from opacus.grad_sample import register_grad_sampler

    def gradients(layer: Any, _given: list[Tensor], of_out: Tensor) -> dict[Any, Tensor]:
        x, *statistics = layer.watched
        own = gradients_of_layer(layer, x, statistics, of_out)
        return {getattr(layer, name): gradient for name, gradient in own.items()}

    register_grad_sampler(list(_KINDS))(gradients)
    for part in module.modules():
        if isinstance(part, _KINDS):
            part.watched = []
    return module
