"""Numbers of 32 bits in 16: each to the nearest, of two equally near to the even one.

numpy converts half precision one number at a time, which is most of what coding it takes. Where torch is loaded, as at
sites that train, it converts sixteen at once (`hanse_learning.site.narrow`). Both give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Singles = NDArray[np.floating[Any]]
"""(n,) float32."""
Halves = NDArray[np.uint16]
"""(n,) of 16 bits."""
Narrow = Callable[[Singles, Halves], None]
"""Writes numbers, which are within the range of the narrow form, in that form."""

BLOCK = 1 << 16
"""Numbers that are narrowed at a time: they stay in a core's cache from the first step to the last, and calls of numpy
are few. As many as a frame has."""


@dataclass(frozen=True, slots=True)
class Narrowing:
    """How numbers are narrowed.

    Attributes:
        half: to half precision.
        brain: to the upper half of float32 (bfloat16).
    """

    half: Narrow
    brain: Narrow


def narrowed(values: Singles, most: float, narrow: Narrow) -> Halves:
    """(n,) numbers in 16 bits; those beyond +-`most` become that.

    Args:
        values: (n,) float32.
    """
    made, room = np.empty(len(values), np.uint16), np.empty(min(BLOCK, len(values)), np.float32)
    for start in range(0, len(values), BLOCK):
        block = values[start : start + BLOCK]
        within = np.clip(block, -most, most, out=room[: len(block)])
        narrow(within, made[start : start + BLOCK])
    return made


def _half(values: Singles, out: Halves) -> None:
    np.copyto(out.view(np.float16), values, casting="same_kind")


def _brain(values: Singles, out: Halves) -> None:
    bits = values.view(np.uint32)
    odd = bits >> np.uint32(16)
    odd &= np.uint32(1)
    odd += np.uint32(0x7FFF)
    odd += bits
    odd >>= np.uint32(16)
    np.copyto(out, odd, casting="same_kind")


BY_NUMPY = Narrowing(_half, _brain)
