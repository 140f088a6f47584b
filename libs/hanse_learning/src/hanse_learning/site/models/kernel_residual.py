"""KNResNets: 18, 34 and 50 (Nasirigerdeh et al., 2024, figure 3) and 13, for private training (2023).

A unit is an activation and a convolution of kernel-normalized units; with another normalization it stands before the
activation. The kernels of the basic blocks are 2x2, padded in the first, so that maps grow by one and shrink again.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from hanse_learning.config import KnresnetConfig
from hanse_learning.site.examples import Problem
from hanse_learning.site.models.basic import Image
from hanse_learning.site.models.blocks import Residual
from hanse_learning.site.models.parts import Parts, initialized
from hanse_learning.site.models.registry import builder, image_shape

_PLANS = {
    "knresnet18": ((64, (256, 256)), (256, (256, 256)), (512, (512,)), (724, (724,)), 512),
    "knresnet34": ((64, (256,) * 4), (256, (320,) * 5), (512, (640,) * 3), (512, (843,) * 2), 512),
    "knresnet50": ((256, (64,) * 4), (512, (128,) * 5), (810, (201,) * 4), (2048, (512,) * 2), None),
}
"""Of each set: its width and the inner widths of its blocks; then the width of the final convolution, if there is one.
"""
_Padding = int | tuple[int, int, int, int]


@builder("knresnet18", "knresnet34", "knresnet50")
def knresnet(config: KnresnetConfig, problem: Problem) -> nn.Module:
    """11,215,840, 21,323,450 and 23,681,570 parameters for 32x32 in colour and 100 classes."""
    parts, deep = Parts.of(config), config.name == "knresnet50"
    *sets, final = _PLANS[config.name]
    large = config.stem == "large"
    paddings: tuple[_Padding, ...] = (
        0, (1, 0, 1, 0), (0, 1, 0, 1), 0 if deep else (2, 1, 2, 1) if large else (1, 0, 1, 0),
    )  # fmt: skip
    wide = sets[0][0]
    layers = _stem(parts, problem, config, wide)
    for number, ((channels, inner), padding) in enumerate(zip(sets, paddings, strict=True)):
        narrow = deep and number == 3  # 1x1 kernels, so that the parameters are not too many
        if number:
            pooled = (*_unit(parts, wide, channels, 1 if narrow else 2, padding), nn.MaxPool2d(2))
            layers[f"transition{number - 1}"] = nn.Sequential(*pooled)
        for index, width in enumerate(inner):
            layers[f"set{number}_{index}"] = _block(parts, channels, width, deep=deep, narrow=narrow)
        wide = channels
    if final is not None:
        layers["pool_last"] = nn.MaxPool2d(2)
        layers["final"] = nn.Sequential(*_unit(parts, wide, final, 2, 0 if large else 1))
        wide = final
    return _headed(layers, parts, wide, 1, problem)


@builder("knresnet13")
def knresnet13(config: KnresnetConfig, problem: Problem) -> nn.Module:
    """Twelve convolutions of 3x3 and a linear layer: 2,041,034 parameters for colour and 10 classes."""
    parts = Parts.of(config)
    layers = _stem(parts, problem, config, 64)
    wide = 64
    for number, channels in enumerate((64, 64, 128, 256)):
        if number:
            layers[f"transition{number - 1}"] = nn.Sequential(*_unit(parts, wide, channels, 3, 1), nn.MaxPool2d(2))
        layers[f"set{number}_0"] = Residual(
            *_unit(parts, channels, channels, 3, 1), *_unit(parts, channels, channels, 3, 1)
        )
        wide = channels
    return _headed(layers, parts, wide, 2, problem)


def _stem(parts: Parts, problem: Problem, config: KnresnetConfig, channels: int) -> OrderedDict[str, nn.Module]:
    depth, _, _ = image_shape(config.name, problem)
    layers: OrderedDict[str, nn.Module] = OrderedDict(image=Image())
    if config.stem == "small":
        layers["conv"] = parts.conv(depth, channels, 3, 1, 1)
        return layers
    layers["conv"] = parts.conv(depth, channels, 7, 2, 3)
    if config.name == "knresnet13":
        layers["act_first"], layers["pool"] = parts.act(), nn.MaxPool2d(2)
    else:
        layers["pool"] = nn.MaxPool2d(3, 2, 1)
    return layers


def _unit(parts: Parts, wide: int, channels: int, kernel: int, padding: _Padding) -> tuple[nn.Module, ...]:
    return parts.norm(wide), parts.act(), parts.conv(wide, channels, kernel, 1, padding)


def _block(parts: Parts, wide: int, inner: int, *, deep: bool, narrow: bool) -> nn.Module:
    """Basic: 2x2 padded, 2x2. Bottleneck: 2x2 padded, 3x3 padded, 2x2; narrow: 1x1, 3x3 padded, 1x1."""
    side, around = (1, 0) if narrow else (2, 1)
    middle = _unit(parts, inner, inner, 3, 1) if deep else ()
    return Residual(*_unit(parts, wide, inner, side, around), *middle, *_unit(parts, inner, wide, side, 0))


def _headed(layers: OrderedDict[str, nn.Module], parts: Parts, wide: int, side: int, problem: Problem) -> nn.Module:
    """Normalization, activation, the mean of each of side x side fields, and the linear layer."""
    layers |= parts.last() or {"last": parts.norm(wide)}
    layers["act"], layers["mean"], layers["flatten"] = parts.act(), nn.AdaptiveAvgPool2d(side), nn.Flatten()
    layers["output"] = nn.Linear(wide * side * side, problem.outputs)
    return initialized(nn.Sequential(layers))
