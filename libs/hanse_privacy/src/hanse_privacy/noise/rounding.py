"""Rounding to the ring's grid before noise is added: at random to either neighbour, so that no sum is biased by it.

Rounding to the nearest, or toward zero, loses what is below a step at every site alike, and no number of sites brings
it back. At random, with the probability that makes the mean right, errors of many sites cancel. It can lengthen a
vector, which the noise was not made for: so updates are clipped a little shorter (`clip_before_rounding`) than the clip
that is charged for, and after rounding they are within it but with a probability of 2^-64, which is charged, too
(`accounting.terms`). Where there is no delta to charge it to, they are clipped so much shorter that they always are.

Rotated updates are rounded conditionally (Kairouz, Liu, Steinke 2021, definition 20): again, until the rounded one is
within the clip. That takes less off the clip, and nothing is left to chance. It is not quite without bias: by at most
beta / (1 - beta) times what rounding can move the update, of which the noise is many times as much.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.accounting.terms import LENGTHENED
from hanse_privacy.noise.aggregate import GAUSSIAN
from hanse_privacy.ring.codec import Uniforms, uniforms

Blocks = Callable[[], Iterator[NDArray[np.float64]]]
"""All values that are rounded, a block at a time, as often as it is called."""

LN_AGAIN = 0.5
"""-ln beta, where beta = exp(-1/2) is the largest probability of having to round again (the paper's choice)."""
_MOST_ATTEMPTS = 1000
"""All of these fail with a probability below 2^-720, where the values are within `clip_before_rounding`."""
_LN_SURELY = -math.log(LENGTHENED)
LEAST_LEFT = 0.5
"""Of a clip: where rounding takes more, the grid is too coarse for so many parameters."""


def steps_from_nearest(values: NDArray[np.float64], step: float, uniforms: Uniforms) -> NDArray[np.int64]:
    """The steps that lead from rounding to the nearest to rounding at random: -1, 0 or 1, of the values' shape.

    Args:
        uniforms: of fresh randomness from a cryptographic generator.
    """
    scaled = values / step
    whole = np.floor(scaled)
    up = uniforms(values.size).reshape(values.shape) < scaled - whole
    moved: NDArray[np.int64] = (whole + up - np.rint(scaled)).astype(np.int64)
    return moved


def conditional_seed(blocks: Blocks, step: float, clip: float) -> bytes:
    """The seed (32 bytes) of `uniforms` with which all values, rounded at random, are within `clip` in L2: the first of
    fresh ones.

    Args:
        step: of the grid.

    Raises:
        HanseError: INVALID_INPUT where none is found, as the values are longer than `clip_before_rounding`.
    """
    most = (clip / step) ** 2
    for _ in range(_MOST_ATTEMPTS):
        seed = os.urandom(32)
        if _squared(blocks(), step, uniforms(seed)) <= most:
            return seed
    raise HanseError(
        ErrorCode.INVALID_INPUT, f"privacy.clip: rounded to steps of {step:g}, an update is never within {clip:g}"
    )


def _squared(blocks: Iterator[NDArray[np.float64]], step: float, chances: Uniforms) -> float:
    """The squared L2 norm of what is rounded, in steps."""
    total = 0.0
    for values in blocks:
        whole = np.rint(values / step) + steps_from_nearest(values, step, chances)
        # Whole numbers: exact below 2^53.
        total += float(np.sum(whole * whole))
    return total


def clip_before_rounding(
    clip: float, mechanism: str, parameters: int, step: float, *, always: bool = False, again: bool = False
) -> float:
    """The norm to clip to, so that the rounded update is within `clip` but with probability 2^-64, or always; or, where
    it is rounded again until it is, with probability 1 - exp(-1/2) at each attempt.

    Always: each coordinate becomes longer by less than a step.

    L2 (Gaussian kinds): Kairouz, Liu, Steinke (2021), the bound of conditional rounding: for x of norm c on a grid of
    step s in d dimensions, |round(x)|^2 <= c^2 + s^2 d / 4 + sqrt(2 ln(1/beta)) s (c + s sqrt(d) / 2).
    L1 (Laplace kinds): Hoeffding (1963), theorem 2: a sum of d numbers that vary by s each exceeds its mean by at most
    s sqrt(d ln(1/beta) / 2).

    Args:
        parameters: d.
        step: of the grid, in the clip's unit.
        again: whether it is rounded conditionally (`conditional_seed`); Gaussian kinds alone.

    Raises:
        HanseError: INVALID_INPUT where less than half of the clip would be left.
    """
    if always and not again:
        left = clip - step * (math.sqrt(parameters) if mechanism in GAUSSIAN else parameters)
    elif mechanism in GAUSSIAN:
        slope = math.sqrt(2 * (LN_AGAIN if again else _LN_SURELY)) * step
        room = clip**2 - step**2 * parameters / 4 - slope * step * math.sqrt(parameters) / 2
        left = (math.sqrt(max(0.0, slope**2 + 4 * room)) - slope) / 2
    else:
        left = clip - step * math.sqrt(parameters * _LN_SURELY / 2)
    if left < LEAST_LEFT * clip:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"privacy.clip: {clip:g} is too small for {parameters} parameters on the ring's grid of {step:g}: rounding "
            "alone could lengthen an update by as much",
            hint="secure_aggregation.bits: 64 or a smaller bound make the grid finer",
        )
    return left
