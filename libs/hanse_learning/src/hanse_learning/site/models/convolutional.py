"""LeNet (LeCun et al., 1998), and the two small networks 2CFNN and 3CFNN (Henkel, 2021)."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from hanse_fabric.errors import invalid
from hanse_learning.config import LenetConfig, ThreeLayerCnnConfig, TwoLayerCnnConfig
from hanse_learning.site.examples import Problem
from hanse_learning.site.models.basic import Image
from hanse_learning.site.models.registry import builder, image_shape


@builder("lenet")
def lenet(config: LenetConfig, problem: Problem) -> nn.Module:
    """LeNet-5; images of 28x28 are padded by two to its 32x32."""
    depth, height, width = image_shape(config.name, problem)
    first, second = _pooled(height, 5, 2), _pooled(width, 5, 2)
    rows, columns = _pooled(first, 5), _pooled(second, 5)
    _check(config.name, problem, rows, columns)
    return nn.Sequential(
        OrderedDict(
            image=Image(), conv0=nn.Conv2d(depth, 6, 5, padding=2), act0=nn.ReLU(), pool0=nn.MaxPool2d(2),
            conv1=nn.Conv2d(6, 16, 5), act1=nn.ReLU(), pool1=nn.MaxPool2d(2), flatten=nn.Flatten(),
            hidden0=nn.Linear(16 * rows * columns, 120), act2=nn.ReLU(), hidden1=nn.Linear(120, 84), act3=nn.ReLU(),
            output=nn.Linear(84, problem.outputs),
        )
    )  # fmt: skip


@builder("2cfnn")
def two_layers(config: TwoLayerCnnConfig, problem: Problem) -> nn.Module:
    """2CFNN: 1,663,370 parameters for 28x28 in grey and 10 classes."""
    depth, height, width = image_shape(config.name, problem)
    rows, columns = height // 2 // 2, width // 2 // 2
    _check(config.name, problem, rows, columns)
    return nn.Sequential(
        OrderedDict(
            image=Image(), conv0=nn.Conv2d(depth, 32, 5, padding=2), act0=nn.ReLU(), pool0=nn.MaxPool2d(2),
            conv1=nn.Conv2d(32, 64, 5, padding=2), act1=nn.ReLU(), pool1=nn.MaxPool2d(2), flatten=nn.Flatten(),
            hidden=nn.Linear(64 * rows * columns, 512), act2=nn.ReLU(), output=nn.Linear(512, problem.outputs),
        )
    )  # fmt: skip


@builder("3cfnn")
def three_layers(config: ThreeLayerCnnConfig, problem: Problem) -> nn.Module:
    """3CFNN: 9,878,794 parameters for 32x32 in colour and 10 classes."""
    depth, height, width = image_shape(config.name, problem)
    rows, columns = (_pooled(_pooled(size, 3), 3) - 2 for size in (height, width))
    _check(config.name, problem, rows, columns)
    return nn.Sequential(
        OrderedDict(
            image=Image(), conv0=nn.Conv2d(depth, 128, 3), act0=nn.ReLU(), pool0=nn.MaxPool2d(2),
            conv1=nn.Conv2d(128, 256, 3), act1=nn.ReLU(), pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(256, 512, 3), act2=nn.ReLU(), flatten=nn.Flatten(),
            hidden=nn.Linear(512 * rows * columns, 1024), act3=nn.ReLU(), output=nn.Linear(1024, problem.outputs),
        )
    )  # fmt: skip


def _pooled(size: int, kernel: int, padding: int = 0) -> int:
    """A side after a convolution and pooling by two."""
    return (size + 2 * padding - kernel + 1) // 2


def _check(name: str, problem: Problem, rows: int, columns: int) -> None:
    if rows < 1 or columns < 1:
        raise invalid("model.name", name, f"a model for images as small as {list(problem.shape[-2:])}", hint="use cnn")
