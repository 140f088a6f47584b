"""ResNets: 18, 34, 50 and the pre-activation 18 for small and large images, 20 for small ones, the shallow 8 and 9."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from torch import nn

from hanse_learning.config import ResnetConfig
from hanse_learning.site.examples import Problem
from hanse_learning.site.models.basic import Image
from hanse_learning.site.models.blocks import Basic, Bottleneck, Preactivated, Residual
from hanse_learning.site.models.parts import Parts, initialized
from hanse_learning.site.models.registry import builder, image_shape

_DEPTHS = {
    "resnet18": (2, 2, 2, 2),
    "resnet34": (3, 4, 6, 3),
    "resnet50": (3, 4, 6, 3),
    "preact_resnet18": (2, 2, 2, 2),
}
_WIDTHS = (64, 128, 256, 512)


@builder("resnet18", "resnet34", "resnet50", "preact_resnet18")
def resnet(config: ResnetConfig, problem: Problem) -> nn.Module:
    """He et al., 2016. With the large stem and 1000 classes, the counts of torchvision's; the small stem is one 3x3."""
    depth, _, _ = image_shape(config.name, problem)
    parts = Parts.of(config)
    norm, act = parts.norm, parts.act
    before = config.name == "preact_resnet18"
    layers: OrderedDict[str, nn.Module] = OrderedDict(image=Image())
    if config.stem == "large":
        layers["conv"] = parts.conv(depth, 64, 7, 2, 3)
    else:
        layers["conv"] = parts.conv(depth, 64, 3, 1, 1)
    if not before:
        layers["norm"], layers["act"] = norm(64), act()
    if config.stem == "large":
        layers["pool"] = nn.MaxPool2d(3, 2, 1)
    block: Any = Preactivated if before else Bottleneck if config.name == "resnet50" else Basic
    wide = 64
    for stage, (channels, count) in enumerate(zip(_WIDTHS, _DEPTHS[config.name], strict=True)):
        for index in range(count):
            stride = 2 if stage and not index else 1
            layers[f"stage{stage}_{index}"] = block(wide, channels, stride, parts)
            wide = channels * block.expansion
    layers |= parts.last()
    if before:
        layers["norm"], layers["act"] = norm(wide), act()
    layers["mean"], layers["flatten"] = nn.AdaptiveAvgPool2d(1), nn.Flatten()
    layers["output"] = nn.Linear(wide, problem.outputs)
    return initialized(nn.Sequential(layers))


@builder("resnet20")
def resnet20(config: ResnetConfig, problem: Problem) -> nn.Module:
    """Three stages of three basic blocks, 16, 32 and 64 wide, with parameterless shortcuts (He et al., 2016,
    ResNet-20, option A): 269,722 parameters for colour and 10 classes, and 1,376 batch statistics."""
    depth, _, _ = image_shape(config.name, problem)
    parts = Parts.of(config)
    norm, act = parts.norm, parts.act
    layers: OrderedDict[str, nn.Module] = OrderedDict(image=Image())
    layers["conv"] = parts.conv(depth, 16, 3, 1, 1)
    layers["norm"], layers["act"] = norm(16), act()
    wide = 16
    for stage, channels in enumerate((16, 32, 64)):
        for index in range(3):
            stride = 2 if stage and not index else 1
            layers[f"stage{stage}_{index}"] = Basic(wide, channels, stride, parts, option_a=True)
            wide = channels
    layers |= parts.last()
    layers["mean"], layers["flatten"] = nn.AdaptiveAvgPool2d(1), nn.Flatten()
    layers["output"] = nn.Linear(64, problem.outputs)
    return initialized(nn.Sequential(layers))


@builder("resnet8", "resnet9")
def shallow(config: ResnetConfig, problem: Problem) -> nn.Module:
    """The shallow ResNets of private training (Nasirigerdeh et al., 2023): conv 64, conv 128 with pooling, a residual
    pair, conv 256 with pooling (9: twice), a residual pair, pooling to 2x2, linear."""
    depth, _, _ = image_shape(config.name, problem)
    parts = Parts.of(config)
    norm, act = parts.norm, parts.act

    def conv(wide: int, channels: int) -> tuple[nn.Module, ...]:
        return parts.conv(wide, channels, 3, padding=1, bias=True), norm(channels), act()

    def pair(channels: int) -> nn.Module:
        # Activated before it is added.
        return Residual(*conv(channels, channels), *conv(channels, channels))

    nine = config.name == "resnet9"
    extra = (*conv(256, 256), nn.MaxPool2d(2)) if nine else ()
    last: tuple[nn.Module, ...] = (*parts.last().values(), nn.AdaptiveMaxPool2d(2))
    if not nine:
        last = (nn.MaxPool2d(2), *parts.last().values(), nn.AdaptiveAvgPool2d(2))
    body = nn.Sequential(
        *conv(depth, 64), *conv(64, 128), nn.MaxPool2d(2), pair(128), *conv(128, 256), nn.MaxPool2d(2), *extra,
        pair(256), *last,
    )  # fmt: skip
    output = nn.Linear(1024, problem.outputs)
    return nn.Sequential(OrderedDict(image=Image(), body=body, flatten=nn.Flatten(), output=output))
