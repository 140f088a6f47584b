"""Gradient-masked averaging: coordinates in which the sites disagree move less (Tenison et al., TMLR 2023).

A = |sum_k sign(u_k)| / K is a coordinate's agreement, from the updates as they came: weights do not count, 0 agrees
with nobody. From tau on a coordinate moves as it would without the mask, to the bit; below, by A of that. tau = 0.4
means that 70 % agree. (Mugunthan, 2022, Algorithms 1 and 4, prints the step with the wrong sign.) Where nobody sees
single updates, the signs are summed under masks, too (`RingPlan.signs`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hanse_learning.server.reduction import Array, Rows

_VOTES = 127
"""Rows that a byte can count."""


@dataclass(frozen=True, slots=True)
class SignMask:
    """A soft mask by the signs of the updates."""

    tau: float

    def of(self, updates: Rows, dtype: np.dtype[np.floating]) -> Array:
        """(n,) factors in [0, 1], of `dtype`, by the signs of `updates` K x (n,)."""
        return self.by(votes(updates), len(updates), dtype)

    def by(self, total: Array, count: int, dtype: np.dtype[np.floating]) -> Array:
        """The same, of the sum of `count` updates' signs, (n,) integers from -count to count."""
        agreement = np.arange(count + 1) / count
        factors = np.where(agreement >= self.tau, 1.0, agreement).astype(dtype)
        return np.asarray(factors[np.abs(total)])


def damp(before: Array, after: Array, mask: Array) -> None:
    """Leave `after` (n,) with `mask` (n,) of its difference to `before` (n,), which is overwritten, where below 1."""
    damped = np.subtract(after, before)
    np.multiply(damped, mask, out=damped)
    np.add(before, damped, out=before)
    np.copyto(after, before, where=mask < 1)


def votes(updates: Rows) -> Array:
    """(n,) int32: how many of K rows (n,) are above 0, minus how many are below."""
    total = np.zeros(len(updates[0]), np.int32)
    for first in range(0, len(updates), _VOTES):
        few = np.zeros(len(total), np.int8)
        for row in updates[first : first + _VOTES]:
            np.add(few, (row > 0).view(np.int8), out=few)
            np.subtract(few, (row < 0).view(np.int8), out=few)
        total += few
    return total
