"""Randomness for noise: the keystream of AES-256 in counter mode under a key of the operating system's.

Everything is drawn with integers, so that each probability here is exact: no logarithm of a float stands between the
random bits and the noise, whose low bits would tell what it was added to (Mironov, CCS 2012).
"""

from __future__ import annotations

import os

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError

Words = NDArray[np.uint64]
Bools = NDArray[np.bool_]

KEY_BYTES = 32
_BUFFER_WORDS = 8192
_ONE = np.uint64(1)


class NoiseSource:
    """A stream of random bits and the exact draws that noise is made of. One thread at a time, and never forked.

    Args:
        seed: the key, 32 bytes. For tests only: noise from a seed that anybody knows protects nobody.

    Raises:
        HanseError: INVALID_INPUT for a seed of another length.
    """

    def __init__(self, seed: bytes | None = None) -> None:
        key = os.urandom(KEY_BYTES) if seed is None else seed
        if len(key) != KEY_BYTES:
            raise HanseError(ErrorCode.INVALID_INPUT, f"seed of noise: {len(key)} bytes, expected {KEY_BYTES}")
        self._stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
        self._zeros = bytes(8 * _BUFFER_WORDS)
        self._buffer: Words = np.empty(0, dtype=np.uint64)

    def words(self, count: int) -> Words:
        """`count` uniform words of 64 bits; none of them is given twice."""
        if count > _BUFFER_WORDS:
            return np.frombuffer(self._stream.update(bytes(8 * count)), dtype="<u8").astype(np.uint64, copy=False)
        if count > self._buffer.size:
            self._buffer = np.frombuffer(self._stream.update(self._zeros), dtype="<u8").astype(np.uint64, copy=False)
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def bits(self, count: int) -> Bools:
        """`count` fair coins."""
        packed = self.words((count + 63) // 64).view(np.uint8)
        return np.unpackbits(packed, count=count).view(np.bool_)

    def below(self, bound: int | Words, count: int | None = None) -> Words:
        """Uniform integers in [0, bound): words above the largest multiple of the bound are drawn again.

        Args:
            bound: at least 1; one for all (then `count` says how many), or one for each, (count,) uint64.
        """
        if isinstance(bound, int):
            if count is None:
                raise HanseError(ErrorCode.INTERNAL, "below: one bound for all needs a count")
            return self._below_one(bound, count)
        found = np.empty(bound.size, dtype=np.uint64)
        open_at: NDArray[np.intp] | None = None
        limits = np.uint64(2**64 - 1) - (np.uint64(2**64 - 1) % bound + _ONE) % bound  # last word accepted
        while open_at is None or open_at.size:
            bounds, last = (bound, limits) if open_at is None else (bound[open_at], limits[open_at])
            drawn = self.words(bounds.size)
            if open_at is None:
                np.remainder(drawn, bounds, out=found)
                open_at = np.flatnonzero(drawn > last)
            else:
                found[open_at] = drawn % bounds
                open_at = open_at[drawn > last]
        return found

    def _below_one(self, bound: int, count: int) -> Words:
        if bound & (bound - 1) == 0:
            return self.words(count) & np.uint64(bound - 1)
        divisor, last = np.uint64(bound), np.uint64(2**64 - 1 - 2**64 % bound)
        drawn = self.words(count).copy()
        again = np.flatnonzero(drawn > last)
        while again.size:
            fresh = self.words(again.size)
            drawn[again] = fresh
            again = again[fresh > last]
        drawn -= drawn // divisor * divisor  # numpy divides by one number faster than it takes remainders
        return drawn

    def exp_minus(self, numerators: Words, denominator: int) -> Bools:
        """Coins that show True with probability exp(-numerator/denominator), for numerators in [0, denominator].

        Canonne, Kamath, Steinke 2020 (arXiv:2004.00010), algorithm 1: the number of the first failure among coins of
        probability (a/b)/k, k = 1, 2, ..., is odd with this probability.
        """
        odd = np.ones(numerators.size, dtype=np.bool_)
        active = np.arange(numerators.size)
        left = numerators
        k = 1
        while active.size:
            kept = self._below_one(denominator, active.size) < left
            active, left = active[kept], left[kept]
            if k > 1:
                kept = self._below_one(k, active.size) == 0
                active, left = active[kept], left[kept]
            odd[active] = ~odd[active]
            k += 1
        return odd

    def exp_minus_one(self, count: int) -> Bools:
        """Coins that show True with probability 1/e."""
        return self.exp_minus(np.ones(count, dtype=np.uint64), 1)

    def poisson_one(self, count: int) -> NDArray[np.int64]:
        """Poisson variables of mean 1: k is proposed with probability 2^-(k+1) and kept with 2^(k-1)/k!.

        Values above 63 (probability below 2^-290) are not proposed.
        """
        out = np.empty(count, dtype=np.int64)
        filled = 0
        while filled < count:
            words = self.words(int((count - filled) * 1.6) + 16)
            proposed = np.bitwise_count((words & (~words + _ONE)) - _ONE)  # trailing zeros
            kept = proposed < 64
            kept[kept] = (proposed[kept] != 0) | self.bits(int(kept.sum()))  # 2^(0-1)/0! = 1/2; k = 1, 2: 1
            values = proposed[kept].astype(np.int64)
            for factor in range(3, int(values.max(initial=0)) + 1):
                doubtful = np.flatnonzero(values >= factor)
                lost = doubtful[self._below_one(factor, doubtful.size) >= 2]  # 2/factor for each factor of k!
                values[lost] = -1
            values = values[values >= 0][: count - filled]
            out[filled : filled + values.size] = values
            filled += values.size
        return out
