"""Whole numbers of any size in limbs, so that sums are exact in a ring of 64 bits without a range being announced.

A number is cut into limbs of LIMB_BITS bits, the lowest first, the last with the sign. The limbs of many participants
are summed each by itself, and carried when they are joined. No numpy here: the hub chooses rings, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.masking import Ring
from hanse_privacy.ring.plan import capacity, largest_sum

LIMB_BITS = 40
_MASK = (1 << LIMB_BITS) - 1


def ring(participants: int) -> Ring:
    """Of limbs, and of any counts below 2^40.

    Raises:
        HanseError: INVALID_INPUT for more participants than such a sum can have.
    """
    found = Ring(bits=64, fraction=0, bound=2.0**LIMB_BITS)
    if largest_sum(found, participants) > capacity(found.bits):
        raise HanseError(ErrorCode.INVALID_INPUT, f"participants: {participants} are more than limbs can sum")
    return found


def split(whole: Iterable[int], limbs: int) -> list[list[int]]:
    """Numbers as so many limbs each.

    Raises:
        HanseError: TOO_LARGE for one that does not fit; which it is is not told.
    """
    rows = []
    for number in whole:
        if abs(number) >= 1 << limbs * LIMB_BITS - 1:
            raise HanseError(ErrorCode.TOO_LARGE, f"a number has more than {limbs} limbs of {LIMB_BITS} bits")
        row = []
        for _ in range(limbs - 1):
            row.append(number & _MASK)
            number >>= LIMB_BITS
        rows.append([*row, number])
    return rows


def join(rows: Sequence[Sequence[int]]) -> list[int]:
    """What `split` made, or a sum of such."""
    return [sum(int(limb) << LIMB_BITS * at for at, limb in enumerate(row)) for row in rows]
