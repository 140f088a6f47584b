"""The staircase mechanism (Geng, Kairouz, Oh, Viswanath 2015): the least noise that makes one number private."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.noise.mechanisms import check_positive
from hanse_privacy.noise.source import NoiseSource

_GRID_BITS = 24
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

    def sample_steps(self, count: int, source: NoiseSource) -> NDArray[np.int64]:
        """Signed middles of cells: a period, each e^-epsilon as likely as the one before, a step of it, a cell of that.

        The choice of the step is by a coin of 64 bits, off by at most 2^-64; all others are exact.
        """
        cells = 1 << _GRID_BITS
        gamma = 1 / (1 + math.exp(self.epsilon / 2))
        upper = min(max(1, round(gamma * cells)), cells)
        with localcontext(prec=50):
            lower = (cells - upper) * (-Decimal(self.epsilon)).exp()
            threshold = int(lower / (upper + lower) * 2**64)
        low = source.words(count) < np.uint64(threshold)
        cell = np.empty(count, dtype=np.uint64)
        cell[low] = np.uint64(upper) + source.below(cells - upper, int(low.sum())) if upper < cells else 0
        cell[~low] = source.below(upper, int((~low).sum()))
        period = np.zeros(count, dtype=np.int64)
        going = np.arange(count)
        while going.size:
            going = going[self._falls(going.size, source)]
            period[going] += 1
        size = 2 * (period * cells + cell.astype(np.int64)) + 1
        return np.where(source.bits(count), size, -size)

    def _falls(self, count: int, source: NoiseSource) -> NDArray[np.bool_]:
        """Coins of exp(-epsilon); epsilon in steps of 2^-40, from below."""
        whole, rest = divmod(math.floor(self.epsilon * 2**40), 2**40)
        fell = source.exp_minus(np.full(count, rest, dtype=np.uint64), 2**40)
        for _ in range(whole):
            left = np.flatnonzero(fell)
            fell[left] = source.exp_minus_one(left.size)
        return fell
