"""Ring elements in memory and on the wire: of 40 bits five bytes, of 48 six, of the others the same as in
memory."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse_privacy.masks.stream import BLOCK_BYTES, MaskStream, Purpose
from hanse_privacy.ring.words import DTYPES, PACKED, ROOM, WIDTHS, elements_in, signed, wire_bytes

SIZES = (0, 1, 2, 3, 7, 8192, 8193, 100_003, 1 << 17)


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("bits", WIDTHS)
def test_what_is_written_are_the_lower_bytes_of_each_element_and_is_read_back(bits: int, count: int) -> None:
    width, dtype = WIDTHS[bits], DTYPES[bits]
    elements = np.frombuffer(os.urandom(count * dtype.itemsize), dtype)
    data = bytes(wire_bytes(elements, bits))
    assert data == elements.view(np.uint8).reshape(count, dtype.itemsize)[:, :width].tobytes()
    # What lies behind the last element is of no account.
    read = elements_in(np.frombuffer(data + os.urandom(ROOM), np.uint8), bits, count)
    assert bytes(wire_bytes(np.ascontiguousarray(read), bits)) == data


@settings(max_examples=50, deadline=None)
@given(
    bits=st.sampled_from(PACKED),
    drawn=st.lists(st.integers(-(2**47), 2**47 - 1), min_size=1),
    junk=st.integers(0, 2**16 - 1),
)
def test_the_upper_bits_of_a_packed_element_mean_nothing(bits: int, drawn: list[int], junk: int) -> None:
    numbers = [number >> (48 - bits) for number in drawn]
    lower = np.array(numbers, np.int64).view(np.uint64) & np.uint64(2**bits - 1)
    assert signed(lower | np.uint64(junk << bits), bits).tolist() == numbers


@pytest.mark.parametrize("bits", WIDTHS)
def test_a_mask_is_taken_off_in_other_blocks_than_it_was_put_on(bits: int) -> None:
    count = 2 * BLOCK_BYTES // WIDTHS[bits] + 5
    plain = np.frombuffer(os.urandom(count * DTYPES[bits].itemsize), DTYPES[bits])
    mask, made = MaskStream(os.urandom(32), Purpose.UPDATE), plain.copy()
    mask.add_to(made, 3 * WIDTHS[bits], bits)
    keystream = mask.block(3 * WIDTHS[bits], count * WIDTHS[bits])
    first = int.from_bytes(keystream[: WIDTHS[bits]], "little")
    assert (int(made[0]) - int(plain[0]) - first) % 2**bits == 0
    for start in range(0, count, 1001):
        mask.subtract_from(made[start : start + 1001], (3 + start) * WIDTHS[bits], bits)
    assert bytes(wire_bytes(made, bits)) == bytes(wire_bytes(plain, bits))
