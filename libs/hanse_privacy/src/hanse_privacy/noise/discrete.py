"""Discrete Laplace and Gaussian noise on a given grid: for sums in a ring, whose step is 2^-fraction."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.noise import exact
from hanse_privacy.noise.gaussian import concentrated_epsilon
from hanse_privacy.noise.mechanisms import Guarantee, Integers, Norm, check_positive
from hanse_privacy.noise.source import NoiseSource


@dataclass(frozen=True, slots=True)
class DiscreteLaplace:
    """P(x) proportional to exp(-|x|/steps): exactly (sensitivity/scale)-private for integers of that L1 sensitivity.

    Attributes:
        sensitivity: L1, in the units of the values.
        steps: the scale, in steps of the grid.
        step: of the grid.
    """

    sensitivity: float
    steps: int
    step: float
    norm: Norm = Norm.L1

    def __post_init__(self) -> None:
        check_positive(sensitivity=self.sensitivity, step=self.step)
        exact.check_scale(self.steps)

    @property
    def scale(self) -> float:
        return self.steps * self.step

    def sample_steps(self, count: int, source: NoiseSource) -> Integers:
        return exact.discrete_laplace(self.steps, count, source)

    def guarantee(self, dimensions: int = 1) -> Guarantee:  # noqa: ARG002
        return Guarantee(self.sensitivity / self.scale)


@dataclass(frozen=True, slots=True)
class DiscreteGaussian:
    """P(x) proportional to exp(-x^2/(2 steps^2)): exactly rho-zCDP, rho = (sensitivity/scale)^2/2 (Canonne, Kamath,
    Steinke 2020, theorem 14), for integers of that L2 sensitivity, in any dimension.

    Attributes:
        sensitivity: L2, in the units of the values.
        steps: sigma, in steps of the grid.
        delta: at which `guarantee` states epsilon, by conversion from zCDP: no less than the exact one.
    """

    sensitivity: float
    steps: int
    step: float
    delta: float = 1e-5
    norm: Norm = Norm.L2

    def __post_init__(self) -> None:
        check_positive(sensitivity=self.sensitivity, step=self.step, delta=self.delta)
        exact.check_scale(self.steps)

    @property
    def scale(self) -> float:
        return self.steps * self.step

    @property
    def rho(self) -> float:
        return (self.sensitivity / self.scale) ** 2 / 2

    def sample_steps(self, count: int, source: NoiseSource) -> Integers:
        return exact.discrete_gaussian(self.steps, count, source)

    def guarantee(self, dimensions: int = 1) -> Guarantee:  # noqa: ARG002
        return Guarantee(concentrated_epsilon(self.rho, self.delta), self.delta)


def whole_steps(scale: float, step: float) -> int:
    """A scale in steps of a grid, rounded up: never less noise than was asked for.

    Raises:
        HanseError: INVALID_INPUT below one step, of which most noise would be zero, or above 2^50 steps.
    """
    if not step <= scale <= exact.LARGEST_SCALE * step:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"noise of scale {scale:g} on a grid of {step:g}: expected 1 to 2^50 steps of it",
            hint="a smaller bound, fewer participants or bits: 64 make the grid finer",
        )
    return math.ceil(scale / step)
