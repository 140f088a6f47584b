"""Numbers in 16 bits: to the nearest, of two equally near to the even one, whoever narrows them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from hanse_learning.codecs.at_site import narrowing
from hanse_learning.codecs.bytes_in import BytesIn
from hanse_learning.codecs.narrow import BLOCK, BY_NUMPY, Narrowing, narrowed
from hanse_learning.codecs.quantizers import HALF_MAX, BFloat16, Float16
from hanse_learning.site.narrow import BY_TORCH

BOTH = [BY_NUMPY, BY_TORCH]


def all_kinds() -> np.ndarray:
    """Every 16th float32 that is finite and then some: all exponents, both signs, ties, and what no half is as large
    or as small as."""
    some = np.arange(0, 1 << 32, (1 << 13) + 1, dtype=np.uint64).astype(np.uint32).view(np.float32)
    ties = (np.arange(1 << 16, dtype=np.uint32) << 16 | 0x8000).view(np.float32)
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    halves = halves[np.isfinite(halves)]
    between = (np.sort(halves)[1:] + np.sort(halves)[:-1]) / 2
    every = np.concatenate([some, ties, halves, between, np.float32([65519.99, 65520, 1e38, -0.0])])
    return every[np.isfinite(every)]


@pytest.mark.parametrize("by", BOTH, ids=["numpy", "torch"])
def test_float16_is_what_the_nearest_half_is(by: Narrowing) -> None:
    values = all_kinds()
    wanted = np.clip(values, -HALF_MAX, HALF_MAX).astype("<f2").tobytes()
    assert Float16(by).write(values, no_draw) == wanted


@pytest.mark.parametrize("by", BOTH, ids=["numpy", "torch"])
def test_bfloat16_is_the_nearest_upper_half(by: Narrowing) -> None:
    values = all_kinds()
    made = np.frombuffer(BFloat16(by).write(values, no_draw), "<u2")
    back = (made.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    step = 2.0 ** (np.maximum(np.frexp(np.abs(values.astype(np.float64)))[1], -125) - 8)
    most = float(np.uint32(0x7F7F0000).view(np.float32))
    inside = np.abs(values) <= most
    assert (np.abs(back - values)[inside] <= step[inside] / 2).all()
    assert np.isfinite(back).all()
    ties = np.abs(back - values)[inside] == step[inside] / 2
    assert ties.any()
    assert (made[inside][ties] & 1 == 0).all()


def test_torch_and_numpy_narrow_to_the_same_bits() -> None:
    values = all_kinds()
    assert Float16(BY_TORCH).write(values, no_draw) == Float16(BY_NUMPY).write(values, no_draw)
    assert BFloat16(BY_TORCH).write(values, no_draw) == BFloat16(BY_NUMPY).write(values, no_draw)


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, 2 * BLOCK + 3])
def test_blocks_meet_at_their_ends(size: int) -> None:
    values = np.linspace(-1e5, 1e5, size).astype(np.float32)
    values.setflags(write=False)  # as arrays that are mapped from a file
    for by in BOTH:
        made = narrowed(values, HALF_MAX, by.half)
        assert made.tobytes() == np.clip(values, -HALF_MAX, HALF_MAX).astype("<f2").tobytes()


@pytest.mark.parametrize("by", BOTH)
@pytest.mark.parametrize("kind", [Float16, BFloat16])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_the_largest_numbers_of_an_entry_arrive_as_finite_ones(
    dtype: type, kind: type[Float16 | BFloat16], by: Narrowing
) -> None:
    most = np.finfo(dtype).max
    values = np.array([most, -most, np.nextafter(most, dtype(0)), 1], dtype)
    codec = kind(by)
    back = codec.read(BytesIn(codec.write(values, no_draw)), len(values), np.dtype(dtype))
    assert np.isfinite(back).all()
    assert (np.abs(back) <= np.abs(values)).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_numbers_of_other_widths_are_rounded_once(dtype: type) -> None:
    # Half a step above 1, and a little more, which float32 cannot tell: rounded twice it would become 1.
    values = np.array([1.0, 0.1, 1 + 2.0**-11 + 2.0**-40], dtype)
    for by in BOTH:
        assert Float16(by).write(values, no_draw) == values.astype("<f2").tobytes()


def test_a_site_that_has_torch_narrows_by_it_and_a_hub_loads_none() -> None:
    assert narrowing() is BY_TORCH
    program = (
        "import sys\n"
        "from hanse_learning.codecs.at_site import narrowing\n"
        "from hanse_learning.codecs.narrow import BY_NUMPY\n"
        "sys.exit(narrowing() is not BY_NUMPY or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=120).returncode == 0


def no_draw(_: int) -> np.ndarray:
    raise AssertionError("nothing is drawn")
