"""Real numbers as integers in limbs, so that sums of any scale are exact in a ring without a range being announced.

A number is round(x * 2^FRACTION), cut into LIMBS limbs of LIMB_BITS bits; the last has the sign. The limbs of many
cohorts are summed each by itself and carried afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from hanse_fabric.errors import ErrorCode, unfit
from hanse_genomics.arrays import Counts, Floats
from hanse_genomics.rings import LIMB_BITS, LIMBS

FRACTION = 120
"""Bits below 1: numbers down to 1e-20 keep 50 bits, and up to 1e35 all of them."""
LARGEST = 2.0 ** (LIMBS * LIMB_BITS - FRACTION - 2)
_MASK = (1 << LIMB_BITS) - 1


def split(values: Iterable[float]) -> Counts:
    """Numbers as limbs: int64 (k, LIMBS), lowest first.

    Raises:
        HanseError: INVALID_INPUT for a number that is not finite or too large.
    """
    rows = []
    for value in values:
        if not math.isfinite(value) or abs(value) >= LARGEST:
            raise unfit(
                "a sum of the phenotype or the covariates: expected below 1e35", f"{value:g}",
                code=ErrorCode.INVALID_INPUT,
                hint="values of 1e15 and more in a column are mistakes, or a unit to be changed",
            )  # fmt: skip
        whole = round(Fraction(value) * (1 << FRACTION))
        row = []
        for _ in range(LIMBS - 1):
            row.append(whole & _MASK)
            whole >>= LIMB_BITS
        rows.append([*row, whole])
    return np.array(rows, dtype=np.int64).reshape(-1, LIMBS)


def join(limbs: Counts) -> Floats:
    """What `split` made, or a sum of such: float64 (k,), correctly rounded."""
    scale = 1 << FRACTION
    return np.array(
        [
            float(Fraction(sum(int(limb) << LIMB_BITS * at for at, limb in enumerate(row)), scale))
            for row in limbs.tolist()
        ],
        dtype=np.float64,
    )
