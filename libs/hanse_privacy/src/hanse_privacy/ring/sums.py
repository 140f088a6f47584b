"""Sums in the middle of a task within a ring: what a site contributes to one, and what it reads of it.

Nothing is clipped or weighted here, because that would change batch statistics.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.masking import Ring, RingPlan
from hanse_privacy.ring.codec import decode, encode
from hanse_privacy.ring.plan import AVERAGE


def sum_ring(plan: RingPlan) -> Ring:
    """The ring of a plan's sums in the middle of a task: that of averaged buffers, whose bound is `buffer_bound`.

    Raises:
        HanseError: INVALID_INPUT for a plan without such a ring of 64 bits.
    """
    ring = plan.entries.get(AVERAGE)
    if ring is None or ring.bits != 64:
        raise invalid(f"ring.entries[{AVERAGE}]", None if ring is None else f"{ring.bits} bits", "a ring of 64 bits")
    return ring


def encode_sum(key: str, values: bytes, ring: Ring) -> NDArray[np.uint64]:
    """The ring elements of a contribution (little-endian float64), to the nearest.

    Raises:
        HanseError: POLICY for values that are not finite or beyond the bound; it tells none of them, nor how many.
    """
    try:
        elements, _ = encode(np.frombuffer(values, "<f8"), ring, refuse=True)
    except HanseError as error:
        if error.code is not ErrorCode.INVALID_INPUT:
            raise
        raise HanseError(
            ErrorCode.POLICY,
            f"the masked sum is refused: exchange {key} has values that are not finite, or beyond +-{ring.bound:g}",
            hint="a larger secure_aggregation.buffer_bound, scaled features, or a lower learning rate may help",
        ) from None
    return elements


def decode_sum(total: bytes, ring: Ring) -> bytes:
    """The sum (little-endian float64) that uint64 elements stand for."""
    return decode(np.frombuffer(total, "<u8"), ring).astype("<f8").tobytes()
