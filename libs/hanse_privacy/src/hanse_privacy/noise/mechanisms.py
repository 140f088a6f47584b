"""Mechanisms: noise that hides a change of bounded norm.

All are sampled on a grid, with integers alone (`hanse_privacy.noise.exact`): `add` rounds the values to the grid,
toward zero, so that no norm grows by it, and adds noise of whole steps, which thus hides the values' low bits too.
The grid is 2^-30 (Gaussian) and 2^-40 (Laplace) of the scale, and the noise hides no less than the continuous one: it
is that one, rounded to the grid.

The unit of privacy is whatever the sensitivity bounds the change of: `clip` for a site's whole clipped update against
zeros, twice that against another update. (For values that are not clipped, rounding adds a step to each coordinate of
the change.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.noise import exact
from hanse_privacy.noise.source import NoiseSource

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_LARGEST_STEPS = 2.0**62
_GAUSSIAN_STEPS = 2**30
_LAPLACE_STEPS = 2**40


class Mechanism(Protocol):
    """Additive noise.

    Attributes:
        step: of the grid; every value of noise is a whole number of them.
    """

    @property
    def step(self) -> float: ...

    def sample_steps(self, count: int, source: NoiseSource) -> Integers:
        """Independent noise in steps of the grid: (count,)."""
        ...


def add(values: Floats, mechanism: Mechanism, source: NoiseSource) -> Floats:
    """The values, rounded to the grid toward zero, with noise: of the values' shape.

    Raises:
        HanseError: INVALID_INPUT where a value is not finite or has more steps than 2^62.
    """
    steps = np.trunc(np.asarray(values, dtype=np.float64) / mechanism.step)
    if not np.all(np.abs(steps) < _LARGEST_STEPS):
        raise HanseError(ErrorCode.INVALID_INPUT, f"values: not finite, or beyond 2^62 steps of {mechanism.step:g}")
    noise = mechanism.sample_steps(steps.size, source).reshape(steps.shape)
    return np.asarray((steps.astype(np.int64) + noise) * mechanism.step, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Laplace:
    """Noise of scale sensitivity/epsilon is epsilon-private for a change of that L1 norm, in any dimension."""

    scale: float

    def __post_init__(self) -> None:
        check_positive(scale=self.scale)

    @property
    def step(self) -> float:
        return self.scale / _LAPLACE_STEPS

    def sample_steps(self, count: int, source: NoiseSource) -> Integers:
        return exact.floored_laplace(_LAPLACE_STEPS, count, source)


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Noise of standard deviation sigma hides a change of L2 norm, in any dimension: `hanse_privacy.noise.gaussian`."""

    sigma: float

    def __post_init__(self) -> None:
        check_positive(sigma=self.sigma)

    @property
    def step(self) -> float:
        return self.sigma / math.sqrt(_GAUSSIAN_STEPS**2 - exact.SMOOTH)

    def sample_steps(self, count: int, source: NoiseSource) -> Integers:
        return exact.discrete_gaussian(_GAUSSIAN_STEPS, count, source)


def check_positive(**numbers: float) -> None:
    """Refuse, naming it, a number that is not finite and above 0.

    Raises:
        HanseError: INVALID_INPUT.
    """
    for name, value in numbers.items():
        if not 0 < value < math.inf:
            raise HanseError(ErrorCode.INVALID_INPUT, f"{name}: {value}, expected a finite number above 0")
