"""A participant's mask: a keystream of which any range can be made alone.

Mask of the bytes [a, b) of a masked file's data section = bytes [a, b) of AES-256 in counter mode (NIST SP 800-38A,
6.5) over zeros, counter block 0 first, under the key HKDF-SHA256(seed, info = purpose) (RFC 5869, no salt). The bytes
are read as little-endian elements of Z_2^bits and added modulo 2^bits (8 to 64, also 40 and 48), so that a masked
element is uniform whatever it hides. A seed is drawn anew for every sum and serves each purpose once; what was asked
goes into it (`masks.bound`), so that masks of two requests have nothing in common.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from hanse_fabric.errors import invalid
from hanse_privacy.ring.words import DTYPES, WIDTHS, elements_in

SEED_BYTES = 32
BLOCK_BYTES = 256 << 10
"""What is made at a time: it stays in a core's cache until it is added."""

_CIPHER_BLOCK = 16
_ZEROS = bytes(BLOCK_BYTES)
_ELEMENTS = tuple(dict.fromkeys(DTYPES.values()))
_threads = threading.local()


class Purpose(StrEnum):
    """What a mask hides, or a seed decides; each has a keystream of its own."""

    UPDATE = "hanse update mask"
    TALLY = "hanse tally mask"
    WITHHELD = "hanse withheld words"
    ROTATION = "hanse rotation signs"
    CHOICE = "hanse chosen parameters"


Mask = Callable[[NDArray[Any], int, int], None]
"""Puts a mask on ring elements in place, or takes it off: given the elements (contiguous, `ring.words.DTYPES`), where
in the data section they begin, in bytes, and their bits."""


class MaskStream:
    """The mask that a seed makes for one purpose. Threads may share it; ranges that follow one another are made
    fastest.

    Args:
        seed: 32 bytes from a CSPRNG.
        purpose: what is masked.

    Raises:
        HanseError: INVALID_INPUT for a seed of another length.
    """

    __slots__ = ("_key", "_left")

    def __init__(self, seed: bytes, purpose: Purpose) -> None:
        if len(seed) != SEED_BYTES:
            raise invalid("seed", f"{len(seed)} bytes", f"a seed of {SEED_BYTES} bytes")
        self._key = HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose.encode()).derive(seed)
        # Where a range was left, for the one that follows it. Taking it out is atomic: no two threads get it.
        self._left: deque[tuple[int, CipherContext]] = deque(maxlen=1)

    def block(self, first_byte: int, nbytes: int) -> bytearray:
        """The mask's bytes [first_byte, first_byte + nbytes)."""
        made = bytearray(nbytes)
        context, buffer = self._at(first_byte), _buffer()
        for start in range(0, nbytes, BLOCK_BYTES):
            size = min(BLOCK_BYTES, nbytes - start)
            context.update_into(_ZEROS if size == BLOCK_BYTES else _ZEROS[:size], buffer.data)
            made[start : start + size] = buffer[:size].data
        self._left.append((first_byte + nbytes, context))
        return made

    def add_to(self, array: NDArray[Any], first_byte: int, bits: int | None = None) -> None:
        """Add the mask to ring elements in place, modulo 2^bits.

        Args:
            array: contiguous uint8 to uint64, any shape.
            first_byte: where in the data section the array begins.
            bits: of an element; None: all that it has in memory.
        """
        self._combine(np.add, array, first_byte, bits)

    def subtract_from(self, array: NDArray[Any], first_byte: int, bits: int | None = None) -> None:
        """Take the mask off again: the inverse of `add_to`."""
        self._combine(np.subtract, array, first_byte, bits)

    def _combine(self, operation: np.ufunc, array: NDArray[Any], first_byte: int, bits: int | None) -> None:
        if array.dtype not in _ELEMENTS or not array.flags.c_contiguous:
            raise invalid("array", str(array.dtype), "a contiguous array of uint8 to uint64")
        context, buffer = self._at(first_byte), _buffer()
        bits = bits or 8 * array.itemsize
        width = WIDTHS[bits]
        flat, step = array.reshape(-1), BLOCK_BYTES // width
        mask = elements_in(buffer, bits, step)
        for start in range(0, flat.size, step):
            part = flat[start : start + step]
            size = part.size * width
            context.update_into(_ZEROS if size == BLOCK_BYTES else _ZEROS[:size], buffer.data)
            operation(part, mask[: part.size], out=part)
        self._left.append((first_byte + array.size * width, context))

    def _at(self, first_byte: int) -> CipherContext:
        """The cipher, about to make the byte `first_byte`."""
        if first_byte < 0:
            raise invalid("first_byte", first_byte, "a position in the mask, 0 or more")
        try:
            position, context = self._left.pop()
            if position == first_byte:
                return context
        except IndexError:
            pass
        counter, skip = divmod(first_byte, _CIPHER_BLOCK)
        mode = modes.CTR(counter.to_bytes(_CIPHER_BLOCK, "big"))
        started: CipherContext = Cipher(algorithms.AES(self._key), mode).encryptor()
        started.update(_ZEROS[:skip])
        return started


def _buffer() -> NDArray[np.uint8]:
    """This thread's buffer for keystream, with room for the one cipher block more that `update_into` wants."""
    made: NDArray[np.uint8] | None = getattr(_threads, "buffer", None)
    if made is None:
        made = _threads.buffer = np.empty(BLOCK_BYTES + _CIPHER_BLOCK, dtype=np.uint8)
    return made
