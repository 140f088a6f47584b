"""DenseNet-20x16 (Nasirigerdeh et al., 2023, after Huang et al., 2017)."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

from hanse_learning.config import DensenetConfig
from hanse_learning.site.examples import Problem
from hanse_learning.site.models.basic import Image
from hanse_learning.site.models.parts import Parts, initialized
from hanse_learning.site.models.registry import builder, image_shape

_FIRST, _GROWTH, _LAYERS, _SETS = 32, 16, 5, 3


class Dense(nn.Module):
    """Adds `growth` channels, made of all that there are, to these."""

    def __init__(self, wide: int, growth: int, parts: Parts) -> None:
        super().__init__()
        self.norm, self.act, self.conv = parts.norm(wide), parts.act(), parts.conv(wide, growth, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.conv(self.act(self.norm(x)))], dim=1)


@builder("densenet20x16")
def densenet(config: DensenetConfig, problem: Problem) -> nn.Module:
    """32 channels, and three sets of five layers that add 16 each; between sets 3x3 and the mean of 2x2 fields."""
    depth, _, _ = image_shape(config.name, problem)
    parts = Parts.of(config)
    layers: OrderedDict[str, nn.Module] = OrderedDict(image=Image(), conv=parts.conv(depth, _FIRST, 3, 1, 1))
    wide = _FIRST
    for number in range(_SETS):
        if number:
            between = (parts.norm(wide), parts.act(), parts.conv(wide, wide, 3, 1, 1), nn.AvgPool2d(2))
            layers[f"transition{number - 1}"] = nn.Sequential(*between)
        for index in range(_LAYERS):
            layers[f"set{number}_{index}"] = Dense(wide, _GROWTH, parts)
            wide += _GROWTH
    layers |= parts.last() or {"last": parts.norm(wide)}
    layers["act"], layers["mean"], layers["flatten"] = parts.act(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    layers["output"] = nn.Linear(wide, problem.outputs)
    return initialized(nn.Sequential(layers))
