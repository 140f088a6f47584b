"""Builders by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from hanse_fabric.errors import invalid
from hanse_learning.config import AnyModel
from hanse_learning.config.models import OF_IMAGES, least_side
from hanse_learning.site.examples import Problem

Builder = Callable[[Any, Problem], nn.Module]
"""Takes the configuration of its own name."""

BUILDERS: dict[str, Builder] = {}


def builder(*names: str) -> Callable[[Builder], Builder]:
    """Register a builder under models' names."""

    def register(build_one: Builder) -> Builder:
        for name in names:
            BUILDERS[name] = build_one
        return build_one

    return register


def build(config: AnyModel, problem: Problem, *, seed: int = 0) -> nn.Module:
    """The module with weights drawn from `seed`, which are the same values in either dtype.

    Torch's global generator is left as it was.

    Raises:
        HanseError: INVALID_INPUT for examples that are no images, or too small, where the model is for images.
    """
    if isinstance(config, OF_IMAGES):
        image_shape(config.name, problem)
        if min(problem.shape[-2:]) < least_side(config):
            raise invalid("model.name", config.name, f"a model for images as small as {list(problem.shape[-2:])}")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        module = BUILDERS[config.name](config, problem)
    return module.double() if config.dtype == "float64" else module


def image_shape(name: str, problem: Problem) -> tuple[int, int, int]:
    """(channels, height, width) of the problem's images.

    Raises:
        HanseError: INVALID_INPUT where its examples are no images.
    """
    if len(problem.shape) not in (2, 3):
        raise invalid("model.name", name, f"a model for examples of shape {list(problem.shape)}", hint="use mlp")
    depth = problem.shape[0] if len(problem.shape) == 3 else 1
    return depth, problem.shape[-2], problem.shape[-1]
