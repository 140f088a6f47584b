"""Sums in the middle of a task within a ring: what a site contributes to one, and what it reads of it.

Nothing is clipped or weighted here, because that would change batch statistics. Under masks no number is refused for
the announced bound either: whoever announces it would bisect a site's number by who refuses. What is beyond it wraps
around, and the sum, which everybody knows, is held against the bound.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.masking import Ring, RingPlan
from hanse_privacy.ring.codec import decode, encode
from hanse_privacy.ring.plan import AVERAGE

_HINT = "a larger secure_aggregation.buffer_bound, scaled features, or a lower learning rate may help"
_LARGEST = 2.0**900  # times any ring's unit, it is finite


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
            hint=_HINT,
        ) from None
    return elements


def wrap_sum(values: bytes, ring: Ring) -> tuple[NDArray[np.uint64], int]:
    """The same of a contribution that masks hide, modulo 2^64, whatever its values are: the sum depends on the sum of
    the values alone, and no refusal tells of one. What is not finite, or as good as that, counts as 0.

    Returns:
        the elements, and how many values are not within the bound.
    """
    given = np.frombuffer(values, "<f8")
    beyond = int(np.count_nonzero(~(np.abs(given) <= ring.bound)))
    elements, _ = encode(np.where(np.abs(given) < _LARGEST, given, 0.0), ring, wrap=True)
    return elements, beyond


def check_sum(key: str, total: bytes, ring: Ring, participants: int) -> None:
    """Whether a sum (little-endian float64) is one that contributions within the bound can have.

    Raises:
        HanseError: POLICY where it is not.
    """
    most = participants * (ring.bound + 2.0**-ring.fraction)
    if (np.abs(np.frombuffer(total, "<f8")) > most).any():
        raise HanseError(
            ErrorCode.POLICY,
            f"the masked sum is refused: exchange {key}, its sum is beyond what {participants} participants within "
            f"+-{ring.bound:g} can have",
            hint=_HINT,
        )


def decode_sum(total: bytes, ring: Ring) -> bytes:
    """The sum (little-endian float64) that uint64 elements stand for."""
    return decode(np.frombuffer(total, "<u8"), ring).astype("<f8").tobytes()
