"""Real numbers as integers in limbs, so that sums of any scale are exact in a ring without a range being announced.

A number is round(x * 2^FRACTION), cut into LIMBS limbs (`hanse_privacy.ring.limbs`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from hanse_fabric.errors import ErrorCode, unfit
from hanse_genomics.arrays import Counts, Floats
from hanse_genomics.rings import LIMBS
from hanse_privacy.ring import limbs as whole
from hanse_privacy.ring.limbs import LIMB_BITS

FRACTION = 120
"""Bits below 1: numbers down to 1e-20 keep 50 bits, and up to 1e35 all of them."""
LARGEST = 2.0 ** (LIMBS * LIMB_BITS - FRACTION - 2)


def split(values: Iterable[float]) -> Counts:
    """Numbers as limbs: int64 (k, LIMBS), lowest first.

    Raises:
        HanseError: INVALID_INPUT for a number that is not finite or too large.
    """
    numbers = []
    for value in values:
        if not math.isfinite(value) or abs(value) >= LARGEST:
            raise unfit(
                "a sum of the phenotype or the covariates: expected below 1e35", f"{value:g}",
                code=ErrorCode.INVALID_INPUT,
                hint="values of 1e15 and more in a column are mistakes, or a unit to be changed",
            )  # fmt: skip
        numbers.append(round(Fraction(value) * (1 << FRACTION)))
    return np.array(whole.split(numbers, LIMBS), dtype=np.int64).reshape(-1, LIMBS)


def join(limbs: Counts) -> Floats:
    """What `split` made, or a sum of such: float64 (k,), correctly rounded."""
    scale = 1 << FRACTION
    return np.array([float(Fraction(number, scale)) for number in whole.join(limbs.tolist())], dtype=np.float64)
