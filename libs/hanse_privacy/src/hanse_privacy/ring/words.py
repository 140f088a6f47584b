"""Ring elements as numpy adds them, and as they stand in files and keystreams: little-endian, bits / 8 bytes each.

The two are the same but for 40 and 48 bits. Those have five and six bytes on the wire, and in memory the lower bits of
words of 64, whose upper bits mean nothing: sums modulo 2^40 or 2^48 do not depend on them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDTHS = {bits: bits // 8 for bits in (8, 16, 32, 40, 48, 64)}
"""Bytes on the wire, by bits."""
DTYPES: dict[int, np.dtype[Any]] = {bits: np.dtype(f"<u{8 if bits > 32 else bits // 8}") for bits in WIDTHS}
"""Of ring elements in memory; `SIGNED`: of the numbers that they stand for."""
SIGNED: dict[int, np.dtype[Any]] = {bits: np.dtype(f"<i{dtype.itemsize}") for bits, dtype in DTYPES.items()}

PACKED = (40, 48)
"""Bits of elements that no number of numpy's is as wide as."""
ROOM = 3
"""Bytes behind the last element of 40 or 48 bits that must be readable: they are read along, and mean nothing."""


def elements_in(buffer: NDArray[np.uint8], bits: int, count: int) -> NDArray[Any]:
    """The first (count,) elements of wire bytes, as `DTYPES[bits]`; no copy.

    Args:
        buffer: contiguous, count * bits / 8 bytes, and `ROOM` more where these are `PACKED`.
    """
    if bits not in PACKED:
        return buffer[: count * WIDTHS[bits]].view(DTYPES[bits])
    return _overlapping(buffer, bits, count)


def wire_bytes(elements: NDArray[Any], bits: int, room: NDArray[np.uint8] | None = None) -> memoryview:
    """What stands in a file; no copy but where they are `PACKED`.

    Args:
        elements: contiguous, of `DTYPES[bits]`.
        room: memory for what is copied, `ROOM` bytes more than that; None: new.
    """
    if bits not in PACKED:
        return elements.data
    size = elements.size * WIDTHS[bits]
    made = np.empty(size + ROOM, np.uint8) if room is None else room
    # numpy writes a row from its beginning: what a word writes beyond its own bytes, the next one writes over.
    _overlapping(made, bits, elements.size)[...] = elements.reshape(-1)
    return made[:size].data


def signed(elements: NDArray[Any], bits: int) -> NDArray[Any]:
    """The numbers that elements stand for, two's complement; a copy where they are `PACKED`."""
    if bits not in PACKED:
        return elements.view(SIGNED[bits])
    numbers: NDArray[np.int64] = np.left_shift(elements, np.uint64(64 - bits)).view(np.int64)
    numbers >>= 64 - bits
    return numbers


def _overlapping(buffer: NDArray[np.uint8], bits: int, count: int) -> NDArray[np.uint64]:
    return np.ndarray((count,), "<u8", buffer.data, strides=(WIDTHS[bits],))
