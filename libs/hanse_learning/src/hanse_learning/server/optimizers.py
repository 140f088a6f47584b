"""Server optimizers: how the reduced change moves the model. All work in place on a block of columns.

The reduced change stands for the negative gradient (the sites' updates are trained minus received), so steps add.
SGD with momentum is FedAvgM (Hsu et al. 2019). Adagrad, Adam and Yogi are Algorithm 2 of Reddi et al. (Adaptive
Federated Optimization, 2021): no bias correction, second moments start at tau^2, tau stands outside the root.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from hanse_learning.server.reduction import Array


class ServerOptimizer(Protocol):
    """Moves the model. Elementwise, in a fixed order of operations, so that blocks do not show in the result."""

    @property
    def state(self) -> Mapping[str, float]:
        """The arrays kept from round to round, by name, with the value that fills them before the first."""
        ...

    def step(self, model: Array, change: Array, state: Mapping[str, Array], round: int) -> None:  # noqa: A002
        """Change `model` (n,) and the `state` arrays (n,) in place; `change` (n,) may be overwritten.

        All have the working dtype. `round` counts from 1.
        """
        ...


@dataclass(frozen=True, slots=True)
class Plain:
    """x += change: federated averaging."""

    @property
    def state(self) -> Mapping[str, float]:
        return {}

    def step(self, model: Array, change: Array, state: Mapping[str, Array], round: int) -> None:  # noqa: A002, ARG002
        """See `ServerOptimizer.step`."""
        np.add(model, change, out=model)


@dataclass(frozen=True, slots=True)
class Sgd:
    """change -= decay x; m = momentum m + change; x += lr m. Without momentum no state is kept."""

    lr: float
    momentum: float
    decay: float = 0.0

    @property
    def state(self) -> Mapping[str, float]:
        return {"momentum": 0.0} if self.momentum else {}

    def step(self, model: Array, change: Array, state: Mapping[str, Array], round: int) -> None:  # noqa: A002, ARG002
        """See `ServerOptimizer.step`."""
        if self.decay:
            np.subtract(change, model * change.dtype.type(self.decay), out=change)
        if self.momentum:
            momentum = state["momentum"]
            np.multiply(momentum, self.momentum, out=momentum)
            np.add(momentum, change, out=momentum)
            np.multiply(momentum, self.lr, out=change)
        else:
            np.multiply(change, self.lr, out=change)
        np.add(model, change, out=model)


AdaptiveKind = Literal["adagrad", "adam", "yogi"]


@dataclass(frozen=True, slots=True)
class Adaptive:
    """m = b1 m + (1 - b1) change; v by kind; x += lr m / (sqrt(v) + tau).

    v: adagrad v + change^2; adam b2 v + (1 - b2) change^2; yogi v - (1 - b2) change^2 sign(v - change^2).
    As Flower 1.41 has them (`flower`), v starts at 0; adagrad has b1 = 0; adam's rate is multiplied by
    sqrt(1 - b2^(round + 1)) / (1 - b1^(round + 1)).
    """

    kind: AdaptiveKind
    lr: float
    beta1: float
    beta2: float
    tau: float
    flower: bool = False

    @property
    def state(self) -> Mapping[str, float]:
        return {"momentum": 0.0, "second_moment": 0.0 if self.flower else self.tau**2}

    def step(self, model: Array, change: Array, state: Mapping[str, Array], round: int) -> None:  # noqa: A002
        """See `ServerOptimizer.step`."""
        momentum, second = state["momentum"], state["second_moment"]
        beta1 = self.decay
        scratch = np.multiply(change, 1 - beta1)
        np.multiply(momentum, beta1, out=momentum)
        np.add(momentum, scratch, out=momentum)
        square = np.square(change, out=change)
        _SECOND_MOMENTS[self.kind](second, square, self.beta2)
        np.sqrt(second, out=scratch)
        np.add(scratch, self.tau, out=scratch)
        np.divide(momentum, scratch, out=scratch)
        np.multiply(scratch, self.rate(round), out=scratch)
        np.add(model, scratch, out=model)

    @property
    def decay(self) -> float:
        """Of the first moment."""
        return 0.0 if self.flower and self.kind == "adagrad" else self.beta1

    def rate(self, round: int) -> float:  # noqa: A002
        """The learning rate of a round."""
        if not self.flower or self.kind != "adam":
            return self.lr
        return self.lr * math.sqrt(1 - self.beta2 ** (round + 1)) / (1 - self.beta1 ** (round + 1))


def _adagrad(second: Array, square: Array, beta2: float) -> None:  # noqa: ARG001
    np.add(second, square, out=second)


def _adam(second: Array, square: Array, beta2: float) -> None:
    np.multiply(second, beta2, out=second)
    np.multiply(square, 1 - beta2, out=square)
    np.add(second, square, out=second)


def _yogi(second: Array, square: Array, beta2: float) -> None:
    sign = np.sign(second - square)
    np.multiply(square, 1 - beta2, out=square)
    np.multiply(square, sign, out=square)
    np.subtract(second, square, out=second)


_SECOND_MOMENTS: dict[AdaptiveKind, Callable[[Array, Array, float], None]] = {
    "adagrad": _adagrad,
    "adam": _adam,
    "yogi": _yogi,
}
