"""Built-in architectures, by name. A builder makes a torch module from its configuration and the problem.

The last layer of each is called `output`. Modules take (n, *shape) and give (n, outputs).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import Tensor, nn

from hanse_fabric.errors import invalid
from hanse_learning.config import CnnConfig, LinearConfig, LogisticConfig, MlpConfig
from hanse_learning.site.examples import Problem

ModelConfig = LogisticConfig | LinearConfig | MlpConfig | CnnConfig
Builder = Callable[[ModelConfig, Problem], nn.Module]

BUILDERS: dict[str, Builder] = {}
_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU}


def builder(name: str) -> Callable[[Builder], Builder]:
    """Register a builder under a model's name."""

    def register(build_one: Builder) -> Builder:
        BUILDERS[name] = build_one
        return build_one

    return register


def build(config: ModelConfig, problem: Problem, *, seed: int = 0) -> nn.Module:
    """The module with weights drawn from `seed`; torch's global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return BUILDERS[config.name](config, problem)


class Image(nn.Module):
    """Gives (n, height, width) its one channel: (n, 1, height, width)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.unsqueeze(1) if x.dim() == 3 else x


@builder("logistic")
@builder("linear")
def _linear(_config: ModelConfig, problem: Problem) -> nn.Module:
    return nn.Sequential(OrderedDict(flatten=nn.Flatten(), output=nn.Linear(_length(problem.shape), problem.outputs)))


@builder("mlp")
def _mlp(config: ModelConfig, problem: Problem) -> nn.Module:
    if not isinstance(config, MlpConfig):
        raise invalid("model", config, "the configuration of an mlp")
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
def _cnn(config: ModelConfig, problem: Problem) -> nn.Module:
    if not isinstance(config, CnnConfig):
        raise invalid("model", config, "the configuration of a cnn")
    if len(problem.shape) not in (2, 3):
        raise invalid("model.name", "cnn", f"a model for examples of shape {list(problem.shape)}", hint="use mlp")
    layers: OrderedDict[str, nn.Module] = OrderedDict(image=Image())
    depth = problem.shape[0] if len(problem.shape) == 3 else 1
    height, width = problem.shape[-2:]
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
