"""A round's correlated noise, made anew from a secret alone: the noise of all rounds up to it is drawn again, from the
keys that it was drawn from. So a kill changes nothing, no state can be lost or be older than it says, and what is held
is as many earlier rounds of a block as the matrix has bands, or buffers.

Noise W has W_t = Z_t - (c_1 W_(t-1) + c_2 W_(t-2) + ...), which is W = inv(C) Z: what earlier rounds have added is
taken off in part. Z_t less that sum is one draw around it (`centred`), which is exact for banded matrices: their
numbers are multiples of 2^-8. Sums of a buffered one are rounded to 2^-8 steps of the grid. Whoever draws the whole
noise alone counts that: two runs whose data differ have them rounded to at most a step further apart in each coordinate
and round (`slack`). In a sum of shares it would depend on how they were split, so these have banded matrices.
"""

from __future__ import annotations

import hmac
import math
import struct
from collections import deque
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import invalid
from hanse_fabric.messages.privacy import Correlation
from hanse_privacy.correlated.centred import centred_gaussian
from hanse_privacy.correlated.matrix import FRACTION, widest
from hanse_privacy.noise.exact import Integers
from hanse_privacy.noise.source import NoiseSource

FORM = 1
"""Of what is drawn from a key: another number wherever the same key would give other noise."""
_REACH = 10.0
"""Deviations, beyond which one number's noise is with a probability below 2^-64."""
_ROOM = 2.0**62
Sources = Callable[[int], NoiseSource]
"""A new source for a round, always from the same key."""


def correlated_steps(matrix: Correlation, sigma: int, count: int, number: int, sources: Sources) -> Integers:
    """Noise W of round `number` (from 1): (count,) steps of the grid.

    Args:
        sigma: of Z, in steps: 4 to 2^40.
        sources: of every round up to this one.

    Raises:
        HanseError: INVALID_INPUT for a round before the first, and for a matrix whose sums have no room.
    """
    _check_room(matrix, sigma, number)
    memory: _Bands | _Buffers = _Buffers(matrix, count) if matrix.decays else _Bands(matrix, count)
    made: Integers = np.zeros(count, dtype=np.int64)
    if number < 1:
        raise invalid("round", number, "1 or more")
    for before in range(1, number + 1):
        made = centred_gaussian(sigma, -memory.sums(), sources(before))
        memory.take(made)
    return made


@lru_cache(maxsize=1024)
def _check_room(matrix: Correlation, sigma: int, number: int) -> None:
    """What is taken off is summed in 64 bits. If it wrapped there, a round's noise would be off by multiples of 2^56
    that follow from earlier noise, of which earlier sums tell all but what it was added to."""
    if matrix.decays:
        return  # these are summed in float64
    unit = 1 << FRACTION
    largest = _REACH * sigma * unit * widest(matrix, max(1, number)) * max(1.0, math.fsum(matrix.weights))
    if not largest < _ROOM:
        raise invalid("privacy.correlation", f"sums up to {largest:g}", f"below {_ROOM:g}, which 64 bits hold")


def source_of(secret: bytes, *parts: str | int) -> NoiseSource:
    """The source that belongs to these names and numbers and to nothing else, under a secret of 32 bytes."""
    encoded = [str(part).encode() for part in ("hanse correlated noise", FORM, *parts)]
    message = b"".join(struct.pack(">I", len(part)) + part for part in encoded)
    return NoiseSource(hmac.digest(secret, message, "sha256"))


def slack(matrix: Correlation, coordinates: int, rounds: int) -> float:
    """By how many steps of the grid, in the L2 norm, rounding can make two runs' releases more different."""
    return float(np.sqrt(float(coordinates) * rounds)) if matrix.decays else 0.0


class _Bands:
    """The noise of as many earlier rounds as the matrix has bands below the diagonal."""

    def __init__(self, matrix: Correlation, count: int) -> None:
        unit = 1 << FRACTION
        self._weights = [round(weight * unit) for weight in matrix.weights]
        if any(whole != weight * unit for whole, weight in zip(self._weights, matrix.weights, strict=True)):
            raise invalid("privacy.matrix", list(matrix.weights), f"multiples of 2^-{FRACTION}")
        self._kept: deque[Integers] = deque(maxlen=len(self._weights))
        self._count = count

    def sums(self) -> Integers:
        """What is taken off, in units of 2^-8 steps."""
        total: Integers = np.zeros(self._count, dtype=np.int64)
        for weight, noise in zip(self._weights, self._kept, strict=False):
            total += weight * noise
        return total

    def take(self, noise: Integers) -> None:
        self._kept.appendleft(noise)


class _Buffers:
    """Sums of all earlier rounds' noise, which decay."""

    def __init__(self, matrix: Correlation, count: int) -> None:
        self._matrix = matrix
        self._kept: list[NDArray[np.float64]] = [np.zeros(count) for _ in matrix.decays]

    def sums(self) -> Integers:
        """What is taken off, in units of 2^-8 steps, rounded."""
        total = sum(
            (weight * kept for weight, kept in zip(self._matrix.weights, self._kept, strict=True)),
            start=np.zeros_like(self._kept[0]),
        )
        made: Integers = np.rint(total * (1 << FRACTION)).astype(np.int64)
        return made

    def take(self, noise: Integers) -> None:
        for decay, kept in zip(self._matrix.decays, self._kept, strict=True):
            kept *= decay
            kept += noise
