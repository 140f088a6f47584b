"""Numbers in fewer bits. All are little-endian."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hanse_learning.codecs.bytes_in import BytesIn
from hanse_learning.codecs.narrow import BY_NUMPY, Narrowing, narrowed
from hanse_learning.codecs.stages import Draw, Values

HALF_MAX = 65504.0
"""The largest number of half precision."""

_BFLOAT_MAX = float(np.array(0x7F7F0000, "<u4").view("<f4"))
_BFLOAT_HALF_MAX = 65280.0
"""The largest number of it that half precision has, too: the next, 65,536, is beyond its range."""

# numpy converts half precision one number at a time; to look numbers up in a table is three times as fast.
_HALVES: NDArray[np.float32] = np.arange(1 << 16, dtype="<u2").view("<f2").astype("<f4")


class Exact:
    """The numbers as they are: where a chain has no quantizer."""

    width = 0

    def write(self, values: Values, draw: Draw) -> bytes:
        """See `Quantizer`."""
        del draw
        return values.tobytes()

    def read(self, data: BytesIn, count: int, dtype: np.dtype[Any]) -> Values:
        """See `Quantizer`."""
        return data.array(dtype.str, count)


@dataclass(frozen=True, slots=True)
class Float16:
    """Half precision."""

    width = 2
    narrowing: Narrowing = BY_NUMPY

    def write(self, values: Values, draw: Draw) -> bytes:
        """See `Quantizer`."""
        del draw
        if values.dtype != np.float32:
            return np.clip(values, -HALF_MAX, HALF_MAX).astype("<f2").tobytes()
        return narrowed(values, HALF_MAX, self.narrowing.half).tobytes()

    def read(self, data: BytesIn, count: int, dtype: np.dtype[Any]) -> Values:
        """See `Quantizer`."""
        return np.take(_HALVES, data.array("<u2", count)).astype(dtype, copy=False)


@dataclass(frozen=True, slots=True)
class BFloat16:
    """The upper half of float32."""

    width = 2
    narrowing: Narrowing = BY_NUMPY

    def write(self, values: Values, draw: Draw) -> bytes:
        """See `Quantizer`."""
        del draw
        most = _BFLOAT_HALF_MAX if values.dtype == np.float16 else _BFLOAT_MAX
        if values.dtype == np.float64:
            values = np.clip(values, -most, most)
        return narrowed(values.astype("<f4", copy=False), most, self.narrowing.brain).tobytes()

    def read(self, data: BytesIn, count: int, dtype: np.dtype[Any]) -> Values:
        """See `Quantizer`."""
        bits = data.array("<u2", count).astype("<u4") << np.uint32(16)
        return bits.view("<f4").astype(dtype, copy=False)


_LEAST_SCALE = 2.0**-100
"""Portions whose values are all smaller become zeros, for their quotients leave the range of float32."""


@dataclass(frozen=True, slots=True)
class Integers:
    """Integers from -L to L, L = 2^(bits - 1) - 1, times (largest magnitude of the portion) / L."""

    bits: int
    rounding: Literal["stochastic", "nearest"]

    @property
    def _levels(self) -> int:
        return int(2 ** (self.bits - 1) - 1)

    def write(self, values: Values, draw: Draw) -> bytes:
        """See `Quantizer`."""
        values = _wide(values)
        scale = max(float(np.max(values, initial=0.0)), -float(np.min(values, initial=0.0)))
        if scale < _LEAST_SCALE:
            return np.array(0.0, "<f8").tobytes()
        # From 0 to 2 L, so that what is cut off to make integers rounds in one direction.
        scaled = values * values.dtype.type(self._levels / scale)
        scaled += values.dtype.type(self._levels)
        if self.rounding == "nearest":
            np.rint(scaled, out=scaled)
        else:
            thresholds = draw(-(-len(values) // 4)).view("<u2")[: len(values)]
            scaled += thresholds * values.dtype.type(2.0**-16)
        np.clip(scaled, 0, 2 * self._levels, out=scaled)
        return np.array(scale, "<f8").tobytes() + _packed(scaled.astype("u1"), self.bits)

    def read(self, data: BytesIn, count: int, dtype: np.dtype[Any]) -> Values:
        """See `Quantizer`."""
        scale = _scale(data, dtype)
        if scale == 0.0:
            return np.zeros(count, dtype)
        numbers = _unpacked(data, count, self.bits)
        if int(np.max(numbers, initial=0)) > 2 * self._levels:
            raise data.bad(f"has an integer above {2 * self._levels}")
        table = ((np.arange(2 * self._levels + 1) - self._levels) * (scale / self._levels)).astype(dtype)
        return np.take(table, numbers)


class Ternary:
    """One bit for each number: its sign, times the mean magnitude of the portion's numbers. A zero has either sign, by
    chance: one for all would move them all in one direction, in every round."""

    def write(self, values: Values, draw: Draw) -> bytes:
        """See `Quantizer`."""
        mean = float(np.mean(np.abs(values), dtype=np.float64)) if len(values) else 0.0
        positive = values > 0
        zeros = np.flatnonzero(values == 0)
        if len(zeros):
            drawn = draw(-(-len(zeros) // 64)).astype("<u8").view("u1")
            positive[zeros] = np.unpackbits(drawn, count=len(zeros)).view(np.bool_)
        return np.array(mean, "<f8").tobytes() + np.packbits(positive).tobytes()

    def read(self, data: BytesIn, count: int, dtype: np.dtype[Any]) -> Values:
        """See `Quantizer`."""
        mean = _scale(data, dtype)
        positive = np.unpackbits(data.array("u1", -(-count // 8)), count=count)
        return np.take(np.array([-mean, mean], dtype), positive)


def _wide(values: Values) -> Values:
    """Half precision has no room for scales and bounds."""
    return values if values.dtype.itemsize > 2 else values.astype("<f4")


def _scale(data: BytesIn, dtype: np.dtype[Any]) -> float:
    scale, most = float(data.array("<f8", 1)[0]), float(np.finfo(dtype).max)
    if not 0.0 <= scale <= most:
        raise data.bad(f"has a scale of {scale}, a number from 0 to {most:.4g} was expected")
    return scale


def _packed(numbers: NDArray[np.uint8], bits: int) -> bytes:
    """Numbers below 2^bits, the first in the highest bits of a byte."""
    each = 8 // bits
    if each > 1:
        filled = np.zeros(-(-len(numbers) // each) * each, np.uint8)
        filled[: len(numbers)] = numbers
        words = filled.view(f"<u{each}")
        joined = np.zeros_like(words)
        for place in range(each):
            # The lowest byte of a word gathers them; what of others comes with one lies outside of it.
            joined |= words >> (bits + place * (8 + bits) - 8) if place else words << (8 - bits)
        numbers = joined.astype(np.uint8)
    return numbers.tobytes()


def _unpacked(data: BytesIn, count: int, bits: int) -> NDArray[np.uint8]:
    each = 8 // bits
    packed: NDArray[np.uint8] = data.array("u1", -(-count // each))
    if each == 1:
        return packed
    numbers = np.empty((len(packed), each), np.uint8)
    for column in range(each):
        numbers[:, column] = (packed >> np.uint8(8 - bits * (column + 1))) & np.uint8(2**bits - 1)
    return numbers.reshape(-1)[:count]
