"""Many small counts in few elements of the 64-bit ring, whose sums stay exact.

Counts are written one behind the other as the digits of one long number, each as wide as its *total* can be, which is
known before: so no count's total runs into the next. The long number is cut into limbs of some bits
(`ranges.limb_bits`); those of several cohorts are added without carrying, and whoever has the totals carries once.
"""

from __future__ import annotations

import numpy as np

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_genomics.arrays import Counts


def widths_of(largest: Counts) -> Counts:
    """Bits that numbers from 0 to `largest` need: int64 of its shape; 0 where only 0 is possible."""
    return np.frexp(largest.astype(np.float64))[1].astype(np.int64)


def limbs_of(widths: Counts, bits: int) -> int:
    """How many limbs `pack` makes."""
    return -(-int(widths.sum()) // bits)


def pack(values: Counts, widths: Counts, bits: int) -> Counts:
    """One cohort's counts as limbs.

    Args:
        values: int64 (F,), each at least 0 and less than 2^width.
        widths: int64 (F,), 0 to `bits`.
        bits: of a limb.

    Returns:
        int64 (limbs,), each less than 2^bits.

    Raises:
        HanseError: INVALID_INPUT when a count does not fit its width.
    """
    limbs = np.zeros(limbs_of(widths, bits) + 1, dtype=np.int64)
    used = np.flatnonzero(widths)
    limb, shift = _places(widths, bits)
    values = values.astype(np.int64, copy=False)
    if ((values < 0) | (values >> widths != 0)).any():
        raise HanseError(ErrorCode.INVALID_INPUT, "structure: a count is larger than all cohorts together can have it")
    limb, shift, values = limb[used], shift[used], values[used]
    room = bits - shift  # bits that are left in the limb where the count begins
    low = values & ((np.int64(1) << room) - 1)
    # Digits do not overlap, so adding is setting; bincount would go by way of float64, which has 53 bits.
    np.add.at(limbs, limb, low << shift)
    np.add.at(limbs, limb + 1, values >> room)
    return limbs[:-1]


def unpack(total: Counts, widths: Counts, bits: int) -> Counts:
    """The totals of counts: int64 (F,).

    Args:
        total: int64 (limbs,): the sum of what `pack` made of each cohort's.
        widths: int64 (F,): as at the cohorts.

    Raises:
        HanseError: INVALID_INPUT when it is not a sum of such counts.
    """
    if total.shape != (limbs_of(widths, bits),) or (total < 0).any():
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"structure: {total.shape} limbs, expected {limbs_of(widths, bits)}, none negative"
        )
    limbs = np.append(total, 0)
    while (carry := limbs >> bits).any():
        limbs &= (1 << bits) - 1
        limbs[1:] += carry[:-1]
        if carry[-1]:
            raise HanseError(ErrorCode.INVALID_INPUT, "structure: counts add up to more than there are samples")
    limb, shift = _places(widths, bits)
    room = bits - shift
    limbs = np.append(limbs, 0)
    values: Counts = (limbs[limb] >> shift) | (limbs[limb + 1] & ((np.int64(1) << shift) - 1)) << room
    values &= (np.int64(1) << widths) - 1
    return values


def _places(widths: Counts, bits: int) -> tuple[Counts, Counts]:
    """The limb in which each count begins, and at which of its bits."""
    if len(widths) and int(widths.max()) > bits:
        raise HanseError(ErrorCode.INVALID_INPUT, f"structure: a count of {int(widths.max())} bits, at most {bits}")
    begin = np.cumsum(widths) - widths
    return begin // bits, begin % bits
