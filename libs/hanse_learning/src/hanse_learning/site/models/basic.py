"""The plain architectures: linear ones, a perceptron, a small convolutional network."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from torch import Tensor, nn

from hanse_learning.config import AnyModel, CnnConfig, MlpConfig
from hanse_learning.site.examples import Problem
from hanse_learning.site.models.registry import builder, image_shape

_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU}


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
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    width = _length(problem.shape)
    for i, hidden in enumerate(config.hidden):
        layers[f"hidden{i}"] = nn.Linear(width, hidden)
        if config.batch_norm:
            layers[f"norm{i}"] = nn.BatchNorm1d(hidden)
        layers[f"activation{i}"] = _ACTIVATIONS[config.activation]()
        if config.dropout:
            layers[f"dropout{i}"] = nn.Dropout(config.dropout)
        width = hidden
    layers["output"] = nn.Linear(width, problem.outputs)
    return nn.Sequential(layers)


@builder("cnn")
def cnn(config: CnnConfig, problem: Problem) -> nn.Module:
    """A block per entry of `channels`."""
    layers: OrderedDict[str, nn.Module] = OrderedDict(image=Image())
    depth, height, width = image_shape(config.name, problem)
    for i, channels in enumerate(config.channels):
        layers[f"conv{i}"] = nn.Conv2d(depth, channels, 3, padding=1)
        if config.batch_norm:
            layers[f"norm{i}"] = nn.BatchNorm2d(channels)
        layers[f"activation{i}"] = _ACTIVATIONS[config.activation]()
        layers[f"halve{i}"] = nn.MaxPool2d(2, ceil_mode=True)
        depth, height, width = channels, -(-height // 2), -(-width // 2)
    layers["flatten"] = nn.Flatten()
    layers["hidden"] = nn.Linear(depth * height * width, config.hidden)
    layers["activation"] = _ACTIVATIONS[config.activation]()
    layers["output"] = nn.Linear(config.hidden, problem.outputs)
    return nn.Sequential(layers)


def _length(shape: tuple[int, ...]) -> int:
    length = 1
    for n in shape:
        length *= n
    return length
