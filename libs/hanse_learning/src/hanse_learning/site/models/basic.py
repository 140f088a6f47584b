"""The plain architectures: linear ones, a perceptron, a small convolutional network."""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from hanse_learning.config import AnyModel, CnnConfig, MlpConfig
from hanse_learning.site.examples import Problem
from hanse_learning.site.models.parts import Parts
from hanse_learning.site.models.registry import builder, image_shape


class Image(nn.Module):
    """Gives (n, height, width) its one channel: (n, 1, height, width)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.unsqueeze(1) if x.dim() == 3 else x


@builder("logistic", "linear")
def linear(config: AnyModel, problem: Problem) -> nn.Module:  # noqa: ARG001 - as every builder
    """One linear layer."""
    return nn.Sequential(OrderedDict(flatten=nn.Flatten(), output=nn.Linear(_length(problem.shape), problem.outputs)))


@builder("mlp")
def mlp(config: MlpConfig, problem: Problem) -> nn.Module:
    """A perceptron."""
    parts = Parts.of(config)
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    width = _length(problem.shape)
    for i, hidden in enumerate(config.hidden):
        layers[f"hidden{i}"] = nn.Linear(width, hidden)
        layers |= _named(f"norm{i}", parts.flat_norm(hidden))
        layers[f"activation{i}"] = parts.act()
        if config.dropout:
            layers[f"dropout{i}"] = nn.Dropout(config.dropout)
        width = hidden
    layers["output"] = nn.Linear(width, problem.outputs)
    return nn.Sequential(layers)


@builder("cnn")
def cnn(config: CnnConfig, problem: Problem) -> nn.Module:
    """A block per entry of `channels`."""
    parts = Parts.of(config)
    layers: OrderedDict[str, nn.Module] = OrderedDict(image=Image())
    depth, height, width = image_shape(config.name, problem)
    for i, channels in enumerate(config.channels):
        layers[f"conv{i}"] = parts.conv(depth, channels, 3, padding=1, bias=True)
        layers |= _named(f"norm{i}", parts.norm(channels))
        layers[f"activation{i}"] = parts.act()
        layers[f"halve{i}"] = nn.MaxPool2d(2, ceil_mode=True)
        depth, height, width = channels, -(-height // 2), -(-width // 2)
    layers |= parts.last()
    layers["flatten"] = nn.Flatten()
    layers["hidden"] = nn.Linear(depth * height * width, config.hidden)
    layers["activation"] = parts.act()
    layers["output"] = nn.Linear(config.hidden, problem.outputs)
    return nn.Sequential(layers)


def _named(name: str, layer: nn.Module) -> dict[str, nn.Module]:
    return {} if isinstance(layer, nn.Identity) else {name: layer}


def _length(shape: tuple[int, ...]) -> int:
    length = 1
    for n in shape:
        length *= n
    return length
