"""AlexNet in one column (Krizhevsky, 2014), and the small network of FedLTN."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from hanse_learning.config import AlexnetConfig, FedLtnCnnConfig
from hanse_learning.site.examples import Problem
from hanse_learning.site.models.basic import Image
from hanse_learning.site.models.parts import Parts
from hanse_learning.site.models.registry import builder, image_shape

_CONVOLUTIONS = ((64, 11, 4, 2, True), (192, 5, 1, 2, True), (384, 3, 1, 1, False), (256, 3, 1, 1, False),
                 (256, 3, 1, 1, True))  # fmt: skip
"""Channels, kernel, stride, padding, and whether pooling follows."""


@builder("alexnet")
def alexnet(config: AlexnetConfig, problem: Problem) -> nn.Module:
    """61,100,840 parameters for 224x224 in colour and 1000 classes, as torchvision has them."""
    depth, _, _ = image_shape(config.name, problem)
    parts = Parts.of(config)
    layers: OrderedDict[str, nn.Module] = OrderedDict(image=Image())
    for number, (channels, kernel, stride, padding, pooled) in enumerate(_CONVOLUTIONS):
        layers[f"conv{number}"] = parts.conv(depth, channels, kernel, stride, padding, bias=True)
        layers[f"norm{number}"], layers[f"act{number}"] = parts.norm(channels), parts.act()
        if pooled:
            layers[f"pool{number}"] = nn.MaxPool2d(3, 2)
        depth = channels
    layers |= parts.last()
    layers["mean"], layers["flatten"] = nn.AdaptiveAvgPool2d(6), nn.Flatten()
    width = depth * 36
    for number in range(2):
        layers[f"dropout{number}"], layers[f"hidden{number}"] = nn.Dropout(config.dropout), nn.Linear(width, 4096)
        layers[f"hidden_act{number}"] = parts.act()
        width = 4096
    layers["output"] = nn.Linear(width, problem.outputs)
    return nn.Sequential(layers)


@builder("fedltn_cnn")
def fedltn_cnn(config: FedLtnCnnConfig, problem: Problem) -> nn.Module:
    """62,006 parameters for 32x32 in colour and 10 classes: the 0.24 MB that are sent (FedLTN, table 4.3)."""
    depth, height, width = image_shape(config.name, problem)
    parts = Parts.of(config)
    layers: OrderedDict[str, nn.Module] = OrderedDict(image=Image())
    for number, channels in enumerate((6, 16)):
        layers[f"conv{number}"] = parts.conv(depth, channels, 5, bias=True)
        layers[f"norm{number}"], layers[f"act{number}"] = parts.norm(channels), parts.act()
        layers[f"pool{number}"] = nn.MaxPool2d(2)
        depth, height, width = channels, (height - 4) // 2, (width - 4) // 2
    layers["flatten"] = nn.Flatten()
    features = depth * height * width
    for number, hidden in enumerate((120, 84)):
        layers[f"hidden{number}"], layers[f"hidden_act{number}"] = nn.Linear(features, hidden), parts.act()
        features = hidden
    layers["output"] = nn.Linear(features, problem.outputs)
    return nn.Sequential(layers)
