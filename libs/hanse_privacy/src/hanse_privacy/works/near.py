"""Whether an answer is near to an earlier one: by 64 numbers of each, which only the site can make and never leave it.

A hub that moves a model by one unit in the last place, or an owner with another seed, asks for another work whose
answer is all but the same. What is kept is a count sketch (Charikar, Chen and Farach-Colton 2002): every coordinate is
added to one of 64 sums, with a sign, both chosen by a secret. Lengths and angles of answers are those of their
sketches, give or take a fifth. So nobody who does not know the secret can make near answers that look far.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.tensors.file import read_tensors

NUMBERS = 64
_BLOCK = 1 << 16
"""Coordinates at once, a multiple of 8: few enough for the cache."""
Sketch = NDArray[np.float64]


def sketch(file: Path, secret: bytes) -> Sketch:
    """The 64 numbers of an update's file.

    Args:
        secret: the site's own.
    """
    key = np.frombuffer(hashlib.sha256(b"hanse near answers 1\n" + secret).digest()[:16], np.uint64)
    signed = np.zeros(2 * NUMBERS)
    draw = np.random.Philox(key=key)
    for _, array in sorted(read_tensors(file)[1].items()):
        flat = array.reshape(-1)
        for begin in range(0, flat.size, _BLOCK):
            block = flat[begin : begin + _BLOCK].astype(np.float64)
            bins = draw.random_raw(-(-block.size // 8)).view(np.uint8)[: block.size] & (2 * NUMBERS - 1)
            signed += np.bincount(bins, weights=block, minlength=2 * NUMBERS)
    with np.errstate(invalid="ignore"):
        found: Sketch = signed[:NUMBERS] - signed[NUMBERS:]
    return found


def nearest(own: Sketch, others: Sequence[Sketch], near: float) -> int | None:
    """Which of others is nearest, by the sine of the angle; None: none is below `near`. What is not finite is near to
    nothing."""
    if not others:
        return None
    sines = np.nan_to_num([sine(own, other) for other in others], nan=np.inf)
    at = int(np.argmin(sines))
    return at if sines[at] < near else None


def sine(one: Sketch, other: Sketch) -> float:
    """Of the angle between two answers, whichever their lengths and signs; 0 where both are zero."""
    lengths = float(np.linalg.norm(one)), float(np.linalg.norm(other))
    if min(lengths) == 0.0:
        return 0.0 if max(lengths) == 0.0 else 1.0
    a, b = one / lengths[0], other / lengths[1]
    # More exact for small angles than 1 - cos^2.
    return float(np.linalg.norm(a - b * np.dot(a, b)))
