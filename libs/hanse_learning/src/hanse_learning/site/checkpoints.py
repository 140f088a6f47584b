"""What a training needs to go on from the end of an epoch, to the same bits: values, optimizer, generators, sums.

Only training that keeps nothing else from step to step may go on from it (`LocalSteps` says so); `dp_sgd`, which must
draw its noise once, never does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from hanse_learning.site.optimizers import Optimizer

Arrays = Mapping[str, np.ndarray]
_MODEL, _OPTIMIZER, _GENERATOR = "model/", "optimizer/", "generator/"
_OF_TORCH, _OF_CUDA = "torch", "cuda"


class Checkpoints(Protocol):
    """Where the site keeps the newest one of a task. `write` may lose it: then training begins anew."""

    def read(self) -> Arrays | None:
        """The newest; None: there is none of this very task and data."""

    def due(self) -> bool:
        """Whether it is time for another."""

    def write(self, arrays: Arrays) -> None:
        """Keep it in place of the one before."""


@dataclass(slots=True)
class Course:
    """How far a training has come.

    Attributes:
        step: the last one that is done, or was passed over.
        taken: how many were taken.
        losses: of the last steps.
        velocity, gone: see `training.descend`.
    """

    step: int
    taken: int
    losses: list[Tensor]
    velocity: float
    gone: float

    def took(self, loss: Tensor, most: int) -> None:
        """Note a step that was taken, and its loss among the last `most`."""
        self.taken += 1
        self.losses.append(loss)
        del self.losses[:-most]


def packed(
    course: Course, module: nn.Module, optimizer: Optimizer, generators: Mapping[str, torch.Generator]
) -> dict[str, np.ndarray]:
    """All of it, as arrays by name."""
    found = {f"{_MODEL}{name}": _array(value) for name, value in module.state_dict().items()}
    for kind, named in optimizer.moments().items():
        found |= {f"{_OPTIMIZER}{kind}/{name}": array for name, array in named.items()}
    for name, generator in {**generators, _OF_TORCH: torch.default_generator}.items():
        found[f"{_GENERATOR}{name}"] = generator.get_state().numpy().copy()
    device = _cuda_of(module)
    if device is not None:
        found[f"{_GENERATOR}{_OF_CUDA}"] = torch.cuda.get_rng_state(device).numpy().copy()
    found["steps"] = np.array([course.step, course.taken], np.int64)
    found["sums"] = np.array([course.velocity, course.gone], np.float64)
    found["losses"] = np.array([_array(loss) for loss in course.losses])
    return found


def unpacked(
    arrays: Arrays, module: nn.Module, optimizer: Optimizer, generators: Mapping[str, torch.Generator]
) -> Course:
    """Put module, optimizer and generators where they were; how far the training had come."""
    at = next(iter(module.state_dict().values())).device
    module.load_state_dict({name: _tensor(array) for name, array in _below(arrays, _MODEL).items()})
    moments: dict[str, dict[str, np.ndarray]] = {}
    for name, array in _below(arrays, _OPTIMIZER).items():
        kind, _, own = name.partition("/")
        moments.setdefault(kind, {})[own] = array
    optimizer.restore(moments)
    for name, generator in {**generators, _OF_TORCH: torch.default_generator}.items():
        generator.set_state(_tensor(arrays[f"{_GENERATOR}{name}"]))
    device = _cuda_of(module)
    if device is not None:
        torch.cuda.set_rng_state(_tensor(arrays[f"{_GENERATOR}{_OF_CUDA}"]), device)
    step, taken = (int(number) for number in arrays["steps"])
    velocity, gone = (float(number) for number in arrays["sums"])
    losses = [_tensor(np.array(loss)).to(at) for loss in arrays["losses"]]
    return Course(step, taken, losses, velocity, gone)


def _below(arrays: Arrays, prefix: str) -> dict[str, np.ndarray]:
    return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}


def _array(value: Tensor) -> np.ndarray:
    return value.detach().cpu().numpy().copy()


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.array(array))


def _cuda_of(module: nn.Module) -> torch.device | None:
    device = next(iter(module.state_dict().values())).device
    return device if device.type == "cuda" else None
