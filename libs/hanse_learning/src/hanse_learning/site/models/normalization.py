"""The choice of normalization: none, batch, group, or layer (which is group normalization with one group)."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from hanse_fabric.errors import invalid
from hanse_learning.config.models import Normalization

Norm = Callable[[int], nn.Module]


def normalization(kind: Normalization, groups: int) -> Norm:
    """What makes a layer that normalizes so many channels.

    Raises:
        HanseError: INVALID_INPUT, when the layer is made, for channels that are no multiple of the groups.
    """
    if kind == "none":
        return lambda channels: nn.Identity()  # noqa: ARG005
    if kind == "batch":
        return nn.BatchNorm2d

    def grouped(channels: int) -> nn.Module:
        count = 1 if kind == "layer" else groups
        if channels % count:
            raise invalid("model.groups", groups, f"a divisor of {channels} channels")
        return nn.GroupNorm(count, channels)

    return grouped


def activation(kind: str) -> Callable[[], nn.Module]:
    """ReLU or Mish."""
    return nn.Mish if kind == "mish" else nn.ReLU
