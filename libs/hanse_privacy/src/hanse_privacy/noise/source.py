"""Randomness for noise: the keystream of AES-256 in counter mode under a key of the operating system's.

Who has a source's key has its noise. Noise is made of its words by tables of integers (`hanse_privacy.noise.tables`).
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


class NoiseSource:
    """A stream of random bits that noise is made of. One thread at a time, and never forked.

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

    def half_words(self, count: int) -> NDArray[np.uint32]:
        """`count` uniform words of 32 bits, which are the caller's to write over."""
        return self.words((count + 1) // 2).astype("<u8").view("<u4")[:count].astype(np.uint32, copy=False)

    def bits(self, count: int) -> Bools:
        """`count` fair coins."""
        packed = self.words((count + 63) // 64).view(np.uint8)
        return np.unpackbits(packed, count=count).view(np.bool_)

    def uniforms(self, count: int) -> NDArray[np.float64]:
        """`count` uniform numbers in [0, 1), of 53 bits."""
        made: NDArray[np.float64] = np.multiply(self.words(count) >> np.uint64(11), 2.0**-53, dtype=np.float64)
        return made

    def below(self, bound: int, count: int) -> Words:
        """`count` uniform integers in [0, bound): words above the largest multiple of the bound are drawn again."""
        divisor, last = np.uint64(bound), np.uint64(2**64 - 1 - 2**64 % bound)
        drawn = self.words(count).copy()
        again = np.flatnonzero(drawn > last)
        while again.size:
            fresh = self.words(again.size)
            drawn[again] = fresh
            again = again[fresh > last]
        return drawn % divisor
