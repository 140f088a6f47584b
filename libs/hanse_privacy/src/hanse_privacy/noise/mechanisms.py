"""Mechanisms: noise that hides a change of bounded norm.

All are sampled on a grid, with integers alone (`hanse_privacy.noise.exact`): `add` rounds the values to the grid, at
random and so that no mean is biased, and adds noise of whole steps, which thus hides the values' low bits too.
The grid is 2^-30 (Gaussian) and 2^-40 (Laplace) of the scale, and the noise hides no less than the continuous one: it
is that one, rounded to the grid.

The unit of privacy is whatever the sensitivity bounds the change of: `clip` for a site's whole clipped update against
zeros, twice that against another update. Rounding adds less than a step to each coordinate of the change: with the same
random number for both, a coordinate's two values are rounded to at most so much more than they differ by, whichever the
number is. It is drawn apart from the data, so what holds for every number holds for the mechanism. `widened` is what
that makes of the norm: to be taken off the clip.
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
_BLOCK = 1 << 15
"""Values that are worked on at once, so that they stay in the processor's cache."""
_GAUSSIAN_STEPS = 2**30
_LAPLACE_STEPS = 2**40


class Mechanism(Protocol):
    """Additive noise.

    Attributes:
        step: of the grid; every value of noise is a whole number of them.
    """

    @property
    def step(self) -> float: ...

    def widened(self, count: int) -> float:
        """By how much rounding can make two vectors of so many values more different, in the mechanism's norm."""
        ...

    def sample_steps(self, count: int, source: NoiseSource) -> Integers:
        """Independent noise in steps of the grid: (count,)."""
        ...


def add(values: Floats, mechanism: Mechanism, source: NoiseSource) -> Floats:
    """The values, rounded at random to either neighbour on the grid, with noise: of the values' shape.

    Raises:
        HanseError: INVALID_INPUT where a value is not finite or has more steps than 2^62.
    """
    with np.errstate(over="ignore"):
        made = np.asarray(np.asarray(values, dtype=np.float64) / mechanism.step)
    coins = source.uniforms(made.size)
    noise = mechanism.sample_steps(made.size, source)
    flat = made.reshape(-1)
    for start in range(0, made.size, _BLOCK):
        own = slice(start, start + _BLOCK)
        steps = np.floor(flat[own])
        if not np.all(np.abs(steps) < _LARGEST_STEPS):
            raise HanseError(ErrorCode.INVALID_INPUT, f"values: not finite, or beyond 2^62 steps of {mechanism.step:g}")
        steps += coins[own] < flat[own] - steps
        flat[own] = (steps.astype(np.int64) + noise[own]) * mechanism.step
    return made


@dataclass(frozen=True, slots=True)
class Laplace:
    """Noise of scale sensitivity/epsilon is epsilon-private for a change of that L1 norm, in any dimension."""

    scale: float

    def __post_init__(self) -> None:
        check_positive(scale=self.scale)

    @property
    def step(self) -> float:
        return self.scale / _LAPLACE_STEPS

    def widened(self, count: int) -> float:
        return count * self.step

    def sample_steps(self, count: int, source: NoiseSource) -> Integers:
        # Rounded down or up after the release, by a coin each: of mean zero.
        return exact.floored_laplace(_LAPLACE_STEPS, count, source) + source.bits(count)


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Noise of standard deviation sigma hides a change of L2 norm, in any dimension: `hanse_privacy.noise.gaussian`."""

    sigma: float

    def __post_init__(self) -> None:
        check_positive(sigma=self.sigma)

    @property
    def step(self) -> float:
        return self.sigma / math.sqrt(_GAUSSIAN_STEPS**2 - exact.SMOOTH)

    def widened(self, count: int) -> float:
        return math.sqrt(count) * self.step

    def sample_steps(self, count: int, source: NoiseSource) -> Integers:
        return exact.discrete_gaussian(_GAUSSIAN_STEPS, count, source)


def clip_left(clip: float, mechanism: Mechanism, count: int) -> float:
    """What is left of a clip where rounding can make vectors of so many values more different (`widened`): nothing
    where the noise's grid is coarser than the clip, and zeros alone are rounded to themselves."""
    return max(0.0, clip - mechanism.widened(count))


def check_positive(**numbers: float) -> None:
    """Refuse, naming it, a number that is not finite and above 0.

    Raises:
        HanseError: INVALID_INPUT.
    """
    for name, value in numbers.items():
        if not 0 < value < math.inf:
            raise HanseError(ErrorCode.INVALID_INPUT, f"{name}: {value}, expected a finite number above 0")
