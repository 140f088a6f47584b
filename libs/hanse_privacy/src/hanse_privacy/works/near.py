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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.tensors.file import read_tensors

NUMBERS = 64
_ABOUT = 1e-3
"""By which a cosine in float32 is surely not off."""
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


def nearest(own: Sketch, others: Sequence[Sketch] | NDArray[Any], near: float) -> int | None:
    """Which of others is nearest, by the sine of the angle; None: none is below `near`. What is not finite is near to
    nothing.

    Args:
        others: (k, 64), of any length.
    """
    if not len(others):
        return None
    known = np.asarray(others)
    at = _perhaps(own, known, near)
    sines = _sines(own, known[at].astype(np.float64))
    best = int(np.argmin(sines)) if at.size else 0
    return int(at[best]) if at.size and sines[best] < near else None


def _perhaps(own: Sketch, others: NDArray[Any], near: float) -> NDArray[np.intp]:
    """Places of those that may be near, and of few more: what is exact for small angles would take ten times as long
    for all."""
    length = float(np.linalg.norm(own))
    with np.errstate(invalid="ignore", over="ignore"):
        one = (own / length if length else own).astype(others.dtype)
        lengths = np.sqrt(np.einsum("ij,ij->i", others, others))
        alike = np.abs(others @ one) >= lengths * ((1 - near**2) ** 0.5 - _ABOUT)
    return np.flatnonzero(alike | (lengths == 0.0))


def _sines(own: Sketch, others: NDArray[np.float64]) -> NDArray[np.float64]:
    """`sine` of one with each of others (k, 64); infinite where either is not finite."""
    length, lengths = float(np.linalg.norm(own)), np.linalg.norm(others, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        one, each = own / length, others / lengths[:, None]
        sines = np.linalg.norm(one - each * (each @ one)[:, None], axis=1)
    if length == 0.0:
        sines = np.where(lengths == 0.0, 0.0, 1.0)
    else:
        sines[lengths == 0.0] = 1.0
    known = np.isfinite(lengths) & np.isfinite(length)
    return np.where(known, np.nan_to_num(sines, nan=np.inf), np.inf)


def sine(one: Sketch, other: Sketch) -> float:
    """Of the angle between two answers, whichever their lengths and signs; 0 where both are zero."""
    lengths = float(np.linalg.norm(one)), float(np.linalg.norm(other))
    if min(lengths) == 0.0:
        return 0.0 if max(lengths) == 0.0 else 1.0
    a, b = one / lengths[0], other / lengths[1]
    # More exact for small angles than 1 - cos^2.
    return float(np.linalg.norm(a - b * np.dot(a, b)))
