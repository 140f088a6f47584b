"""VGG of 6, 11 and 16 layers (Simonyan and Zisserman, 2015; VGG-6: Nasirigerdeh et al., 2023)."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from hanse_fabric.errors import invalid
from hanse_learning.config import VggConfig
from hanse_learning.site.examples import Problem
from hanse_learning.site.models.basic import Image
from hanse_learning.site.models.parts import Parts
from hanse_learning.site.models.registry import builder, image_shape

PLANS: dict[str, tuple[tuple[int, ...], ...]] = {
    "vgg6": ((64,), (128,), (256,), (512, 512)),
    "vgg11": ((64,), (128,), (256, 256), (512, 512), (512, 512)),
    "vgg16": ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512)),
}
"""Widths of the convolutions of each block."""


@builder("vgg6", "vgg11", "vgg16")
def vgg(config: VggConfig, problem: Problem) -> nn.Module:
    """Blocks of 3x3 convolutions with pooling between them.

    vgg6 ends in the mean over its last map (3,915,914 parameters for colour and 10 classes); vgg11 and vgg16 pool after
    the last block, too, and flatten (vgg16: 65,087,304 for 150x150 in colour and 8 classes).
    """
    depth, height, width = image_shape(config.name, problem)
    parts = Parts.of(config)
    act = parts.act
    layers: OrderedDict[str, nn.Module] = OrderedDict(image=Image())
    blocks = PLANS[config.name]
    mean = config.name == "vgg6"
    number = 0
    for block, widths in enumerate(blocks):
        for channels in widths:
            layers[f"conv{number}"] = parts.conv(depth, channels, 3, padding=1, bias=True)
            layers[f"norm{number}"] = parts.norm(channels)
            layers[f"act{number}"] = act()
            depth, number = channels, number + 1
        if block < len(blocks) - 1 or not mean:
            layers[f"pool{block}"] = nn.MaxPool2d(2)
            height, width = height // 2, width // 2
    if height < 1 or width < 1:
        raise invalid("model.name", config.name, f"a model for images as small as {list(problem.shape[-2:])}")
    if mean:
        layers["mean"] = nn.AdaptiveAvgPool2d(1)
        height = width = 1
    layers["flatten"] = nn.Flatten()
    features = depth * height * width
    hidden = config.hidden if config.hidden is not None else ((4096, 4096) if config.name == "vgg16" else ())
    for index, size in enumerate(hidden):
        layers[f"hidden{index}"] = nn.Linear(features, size)
        layers[f"hidden_act{index}"] = act()
        features = size
    layers["output"] = nn.Linear(features, problem.outputs)
    return nn.Sequential(layers)
