"""Mechanisms: noise that hides a change of bounded norm, each with the sensitivity it is for and what it guarantees.

All are sampled on a grid, with integers alone (`hanse_privacy.noise.exact`): `add` rounds the values to the grid,
toward zero, so that no norm grows by it, and adds noise of whole steps, which thus hides the values' low bits too.
The grid of the continuous kinds is 2^-24 of their scale and finer: their discrete namesakes to within it.

The unit of privacy is whatever the sensitivity bounds the change of: `clip` for a site's whole clipped update against
zeros, twice that against another update. (For values that are not clipped, rounding adds a step to each coordinate of
the change: 2^-24 of the scale.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.noise import exact
from hanse_privacy.noise.gaussian import gaussian_delta, gaussian_epsilon, gaussian_ratio
from hanse_privacy.noise.source import NoiseSource

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_GRID_BITS = 24


class Norm(StrEnum):
    """In which a change is bounded: of a whole vector (L1, L2), or of each of its coordinates (LINF)."""

    L1 = "l1"
    L2 = "l2"
    LINF = "linf"


@dataclass(frozen=True, slots=True)
class Guarantee:
    """(epsilon, delta)-differential privacy of one release."""

    epsilon: float
    delta: float = 0.0


class Mechanism(Protocol):
    """Additive noise.

    Attributes:
        norm, sensitivity: the change that is hidden.
        scale: b of Laplace kinds, standard deviation of Gaussian kinds, sensitivity of the staircase.
        step: of the grid; every value of noise is a whole number of them.
    """

    @property
    def norm(self) -> Norm: ...

    @property
    def sensitivity(self) -> float: ...

    @property
    def scale(self) -> float: ...

    @property
    def step(self) -> float: ...

    def sample_steps(self, count: int, source: NoiseSource) -> Integers:
        """Independent noise in steps of the grid: (count,)."""
        ...

    def guarantee(self, dimensions: int = 1) -> Guarantee:
        """What one release of a vector of so many coordinates guarantees."""
        ...


def sample(mechanism: Mechanism, shape: tuple[int, ...] | int, source: NoiseSource) -> Floats:
    """Independent noise of a shape, in the units of the values."""
    dimensions = (shape,) if isinstance(shape, int) else shape
    steps = mechanism.sample_steps(math.prod(dimensions), source)
    return np.asarray(steps * mechanism.step, dtype=np.float64).reshape(dimensions)


def add(values: Floats, mechanism: Mechanism, source: NoiseSource) -> Floats:
    """The values, rounded to the grid toward zero, with noise: of the values' shape.

    Raises:
        HanseError: INVALID_INPUT where a value is not finite or has more steps than 2^52 (its noise would be lost).
    """
    steps = np.trunc(np.asarray(values, dtype=np.float64) / mechanism.step)
    if not np.all(np.abs(steps) < 2.0**52):
        raise HanseError(ErrorCode.INVALID_INPUT, f"values: not finite, or beyond 2^52 steps of {mechanism.step:g}")
    noise = mechanism.sample_steps(steps.size, source).reshape(steps.shape)
    return np.asarray((steps.astype(np.int64) + noise) * mechanism.step, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Laplace:
    """Scale sensitivity/epsilon: epsilon-private for a change of L1 norm `sensitivity`, in any dimension."""

    sensitivity: float
    epsilon: float
    norm: Norm = Norm.L1

    def __post_init__(self) -> None:
        check_positive(sensitivity=self.sensitivity, epsilon=self.epsilon)

    @property
    def scale(self) -> float:
        return self.sensitivity / self.epsilon

    @property
    def step(self) -> float:
        return _grid(self.scale)

    def sample_steps(self, count: int, source: NoiseSource) -> Integers:
        return exact.discrete_laplace(math.ceil(self.scale / self.step), count, source)

    def guarantee(self, dimensions: int = 1) -> Guarantee:  # noqa: ARG002
        return Guarantee(self.epsilon)


@dataclass(frozen=True, slots=True)
class TruncatedLaplace:
    """Laplace noise that never exceeds `limit` = (sensitivity/epsilon) ln(1 + (e^epsilon - 1)/(2 delta)).

    (epsilon, delta)-private for one coordinate that changes by `sensitivity`; in more, delta adds up.
    """

    sensitivity: float
    epsilon: float
    delta: float
    norm: Norm = Norm.L1

    def __post_init__(self) -> None:
        check_positive(sensitivity=self.sensitivity, epsilon=self.epsilon, delta=self.delta)
        if self.delta >= 0.5:
            raise HanseError(ErrorCode.INVALID_INPUT, f"delta: {self.delta:g}, expected below 0.5")

    @property
    def scale(self) -> float:
        return self.sensitivity / self.epsilon

    @property
    def step(self) -> float:
        return _grid(self.scale)

    @property
    def limit(self) -> float:
        return self.scale * math.log1p(math.expm1(self.epsilon) / (2 * self.delta))

    def sample_steps(self, count: int, source: NoiseSource) -> Integers:
        scale, limit = math.ceil(self.scale / self.step), math.ceil(self.limit / self.step)
        noise = exact.discrete_laplace(scale, count, source)
        while (beyond := np.flatnonzero(np.abs(noise) > limit)).size:
            noise[beyond] = exact.discrete_laplace(scale, beyond.size, source)
        return noise

    def guarantee(self, dimensions: int = 1) -> Guarantee:
        return Guarantee(self.epsilon, min(1.0, dimensions * self.delta))


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Gaussian noise for a change of L2 norm `sensitivity`, in any dimension; see `calibrated`."""

    sensitivity: float
    sigma: float
    delta: float = 1e-5
    norm: Norm = Norm.L2

    def __post_init__(self) -> None:
        check_positive(sensitivity=self.sensitivity, sigma=self.sigma, delta=self.delta)

    @classmethod
    def calibrated(cls, sensitivity: float, epsilon: float, delta: float) -> Gaussian:
        """The least noise that is (epsilon, delta)-private (Balle and Wang 2018)."""
        check_positive(sensitivity=sensitivity)
        return cls(sensitivity, sensitivity * gaussian_ratio(epsilon, delta), delta)

    @property
    def scale(self) -> float:
        return self.sigma

    @property
    def step(self) -> float:
        return _grid(self.sigma)

    def sample_steps(self, count: int, source: NoiseSource) -> Integers:
        return exact.discrete_gaussian(math.ceil(self.sigma / self.step), count, source)

    def delta_at(self, epsilon: float) -> float:
        """The delta of one release at an epsilon, on the analytic curve."""
        return gaussian_delta(self.sigma / self.sensitivity, epsilon)

    def guarantee(self, dimensions: int = 1) -> Guarantee:  # noqa: ARG002
        return Guarantee(gaussian_epsilon(self.sigma / self.sensitivity, self.delta), self.delta)


def _grid(scale: float) -> float:
    """A power of two, from 2^-25 to 2^-24 of the scale."""
    return math.ldexp(1.0, math.frexp(scale)[1] - 1 - _GRID_BITS)


def check_positive(**numbers: float) -> None:
    """Refuse, naming it, a number that is not finite and above 0.

    Raises:
        HanseError: INVALID_INPUT.
    """
    for name, value in numbers.items():
        if not 0 < value < math.inf:
            raise HanseError(ErrorCode.INVALID_INPUT, f"{name}: {value}, expected a finite number above 0")
