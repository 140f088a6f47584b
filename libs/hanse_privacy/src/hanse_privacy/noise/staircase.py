"""The staircase mechanism (Geng, Kairouz, Oh, Viswanath 2015): the least noise that makes one number private."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.noise.exact import geometric
from hanse_privacy.noise.mechanisms import check_positive
from hanse_privacy.noise.source import NoiseSource
from hanse_privacy.noise.tables import NoiseTable
from hanse_privacy.noise.weights import UNIT_BITS, exp_in_units

_GRID_BITS = 24
_CELLS = 1 << _GRID_BITS
_LARGEST_EPSILON = 20.0


@dataclass(frozen=True, slots=True)
class Staircase:
    """Noise of constant density on steps of width gamma and 1 - gamma of the sensitivity, each period e^-epsilon lower;
    gamma is 1/(1 + e^(epsilon/2)), of least expected size.

    The density of a shift that is ever so small can differ by e^epsilon. So each coordinate that changes costs epsilon,
    by however little it changes: for vectors the Laplace mechanism is the better one, from two coordinates on.

    Attributes:
        sensitivity: largest change of one coordinate.
    """

    sensitivity: float
    epsilon: float

    def __post_init__(self) -> None:
        check_positive(sensitivity=self.sensitivity, epsilon=self.epsilon)
        if self.epsilon > _LARGEST_EPSILON:
            raise HanseError(ErrorCode.INVALID_INPUT, f"epsilon: {self.epsilon}, expected up to {_LARGEST_EPSILON:g}")

    @property
    def step(self) -> float:
        """2^-25 of the sensitivity: noise lies in the middles of cells of two steps, so that zero is not special."""
        return math.ldexp(self.sensitivity, -_GRID_BITS - 1)

    def widened(self, count: int) -> float:  # noqa: ARG002 - what is hidden is the change of each coordinate
        return self.step

    def sample_steps(self, count: int, source: NoiseSource) -> NDArray[np.int64]:
        """Signed middles of cells: (count,). A period, a step of it, a cell of that, a sign."""
        upper, coin = _steps(self.epsilon)
        period = geometric(Fraction(self.epsilon), count, source)
        low = coin.draw(count, source).astype(np.bool_)
        cell = np.empty(count, dtype=np.int64)
        cell[low] = upper + source.below(_CELLS - upper, int(low.sum())).view(np.int64)
        cell[~low] = source.below(upper, int((~low).sum())).view(np.int64)
        size = 2 * (period * _CELLS + cell) + 1
        return np.where(source.bits(count), size, -size)


@lru_cache(maxsize=8)
def _steps(epsilon: float) -> tuple[int, NoiseTable]:
    """Cells of the upper step of a period, and the coin between it and the lower one."""
    upper = min(max(1, round(_CELLS / (1 + math.exp(epsilon / 2)))), _CELLS - 1)
    return upper, NoiseTable([upper << UNIT_BITS, (_CELLS - upper) * exp_in_units(Fraction(-epsilon))])
