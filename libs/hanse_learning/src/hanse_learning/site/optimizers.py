"""SGD and Adam as torch.optim computes them, to the bit, without loading torch's compiler (0.8 s and 100 MB a site)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_learning.config import AdamConfig, SgdConfig

Named = Mapping[str, nn.Parameter]
Moments = Mapping[str, Mapping[str, np.ndarray]]
"""What an optimizer keeps, by kind and parameter's name; each array of the parameter's shape, but `count`'s (1,)."""

_EPSILON = 1e-8
_COUNT = "count"


class Optimizer(Protocol):
    """Applies the gradients that its parameters have; what it keeps from call to call is its own."""

    def __call__(self, factor: float = 1.0) -> None:
        """Take a step at the configured rate times `factor`."""

    @property
    def momentum(self) -> float | None:
        """Share of a step's gradient that every later step repeats; None where steps are no sums of gradients."""

    def moments(self) -> dict[str, dict[str, np.ndarray]]:
        """Copies of what it keeps."""

    def restore(self, kept: Moments) -> None:
        """Go on from what another one kept of the same parameters.

        Raises:
            HanseError: INVALID_INPUT where it is of other parameters.
        """


def make_optimizer(
    parameters: Named | Iterable[nn.Parameter], config: SgdConfig | AdamConfig, kept: Moments | None = None
) -> Optimizer:
    """The configured optimizer of those parameters that need gradients.

    Args:
        kept: what another one kept of parameters of the same names, to go on from.

    Raises:
        HanseError: INVALID_INPUT where `kept` is of other parameters.
    """
    named = parameters if isinstance(parameters, Mapping) else {str(i): p for i, p in enumerate(parameters)}
    moving = {name: parameter for name, parameter in named.items() if parameter.requires_grad}
    known = kept or {}
    return _Adam(moving, config, known) if isinstance(config, AdamConfig) else _Sgd(moving, config, known)


class _Sgd:
    def __init__(self, parameters: Named, config: SgdConfig, kept: Moments) -> None:
        self._parameters, self._config = parameters, config
        self.momentum: float | None = config.momentum
        self.restore(kept)

    def restore(self, kept: Moments) -> None:
        """See `Optimizer`."""
        self._velocities: dict[str, Tensor] = _restored(self._parameters, kept, "velocity") or {}

    @torch.no_grad()
    def __call__(self, factor: float = 1.0) -> None:
        """See `Optimizer`."""
        for name, parameter in self._parameters.items():
            change = _gradient(parameter, self._config.weight_decay)
            if change is None:
                continue
            if self._config.momentum:
                velocity = self._velocities.get(name)
                if velocity is None:
                    self._velocities[name] = change = change.clone()
                else:
                    change = velocity.mul_(self._config.momentum).add_(change)
            parameter.add_(change, alpha=-self._config.lr * factor)

    def moments(self) -> dict[str, dict[str, np.ndarray]]:
        """See `Optimizer`."""
        return {"velocity": _copies(self._velocities)} if self._velocities else {}


class _Adam:
    momentum: float | None = None

    def __init__(self, parameters: Named, config: AdamConfig, kept: Moments) -> None:
        self._parameters, self._config = parameters, config
        self.restore(kept)

    def restore(self, kept: Moments) -> None:
        """See `Optimizer`."""
        self._first = _restored(self._parameters, kept, "first") or _zeros(self._parameters)
        self._second = _restored(self._parameters, kept, "second") or _zeros(self._parameters)
        self._steps = int(kept[_COUNT]["steps"][0]) if _COUNT in kept else 0

    @torch.no_grad()
    def __call__(self, factor: float = 1.0) -> None:
        """See `Optimizer`."""
        config = self._config
        self._steps += 1
        rate = config.lr * factor / (1 - config.beta1**self._steps)
        scale = math.sqrt(1 - config.beta2**self._steps)
        for name, parameter in self._parameters.items():
            gradient = _gradient(parameter, config.weight_decay)
            if gradient is None:
                continue
            mean, square = self._first[name], self._second[name]
            mean.lerp_(gradient, 1 - config.beta1)
            square.mul_(config.beta2).addcmul_(gradient, gradient, value=1 - config.beta2)
            parameter.addcdiv_(mean, (square.sqrt() / scale).add_(_EPSILON), value=-rate)

    def moments(self) -> dict[str, dict[str, np.ndarray]]:
        """See `Optimizer`."""
        steps = {"steps": np.array([self._steps], np.int64)}
        return {"first": _copies(self._first), "second": _copies(self._second), _COUNT: steps}


def _gradient(parameter: nn.Parameter, weight_decay: float) -> Tensor | None:
    if parameter.grad is None or not weight_decay:
        return parameter.grad
    return parameter.grad.add(parameter, alpha=weight_decay)


def _zeros(parameters: Named) -> dict[str, Tensor]:
    return {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in tensors.items()}


def _restored(parameters: Named, kept: Moments, kind: str) -> dict[str, Tensor] | None:
    if kind not in kept:
        return None
    arrays = kept[kind]
    for name, parameter in parameters.items():
        if name not in arrays or arrays[name].shape != tuple(parameter.shape):
            raise HanseError(
                ErrorCode.INVALID_INPUT,
                f"optimizer state: {kind} of {name} is missing or of another shape than the parameter",
                hint="the model was changed within the run; start another run",
            )
    return {name: torch.from_numpy(np.array(arrays[name])).to(each.device) for name, each in parameters.items()}
