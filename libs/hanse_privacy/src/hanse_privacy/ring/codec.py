"""Real numbers and counts to ring elements and back: the arithmetic that `ring.plan` proves cannot overflow."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.masking import Ring
from hanse_privacy.ring.words import DTYPES, SIGNED, signed

Uniforms = Callable[[int], NDArray[np.float64]]
"""Makes so many numbers in [0, 1), multiples of 2^-53."""

_LEADING = 1.5 * 2.0**52
_LEADING_BITS = np.float64(_LEADING).view(np.int64)
_NEAREST_BELOW = 2.0**51


def encode(
    values: NDArray[Any],
    ring: Ring,
    *,
    factor: float = 1.0,
    stochastic: Uniforms | None = None,
    refuse: bool = False,
    wrap: bool = False,
    room: NDArray[np.float64] | None = None,
    summed: bool = False,
) -> tuple[NDArray[Any], int]:
    """Ring elements of numbers: round(factor * clip(x, bound) * 2^fraction) modulo 2^bits.

    Args:
        values: floats, or integers (exact where fraction is 0 and factor 1); any shape, kept.
        factor: weight / largest weight; above 1 the elements are as large as they are, modulo 2^bits, as with `wrap`.
        stochastic: rounds to either neighbour with the probability that makes it unbiased; None: to the nearest.
        refuse: refuse values beyond the bound instead of clipping them.
        wrap: take values beyond the bound as they are, modulo 2^bits, whatever `refuse` says: so the sum depends on the
            sum of the values alone, and nobody learns from a bound of their choice who is beyond it.
        room: (at least as many as values are,): memory to work in, and where elements of more than 32 bits may lie.
            Whoever encodes many blocks gives the same again: memory that is taken anew costs more than what is
            reckoned in it.
        summed: the ring holds the sum (`RingPlan.total`), and perhaps not what a single number may be.

    Returns:
        elements of `words.DTYPES[ring.bits]`, and how many values were clipped.

    Raises:
        HanseError: INVALID_INPUT for values that are not finite, for values beyond the bound where they are refused,
            and for a ring that cannot hold its bound.
    """
    # Of a single number that the ring need not hold, the residue is taken of 64 bits.
    if ring.bound * 2.0**ring.fraction + 1 >= 2.0 ** ((64 if summed else ring.bits) - 1):
        raise invalid("ring.fraction", ring.fraction, f"small enough for +-{ring.bound:g} in {ring.bits} bits")
    if wrap:
        integers, clipped = _residues(values, ring), 0
    else:
        integers, clipped = to_integers(values, ring, factor=factor, stochastic=stochastic, refuse=refuse, room=room)
    # Truncation to the lower bits is the residue modulo 2^bits.
    return integers.astype(SIGNED[ring.bits], copy=False).view(DTYPES[ring.bits]), clipped


def decode(total: NDArray[Any], ring: Ring) -> NDArray[np.float64]:
    """The sum that ring elements stand for, as float64; exact below 2^53 units of 2^-fraction."""
    numbers = signed(np.ascontiguousarray(total, dtype=DTYPES[ring.bits]), ring.bits)
    decoded: NDArray[np.float64] = np.multiply(numbers, 2.0**-ring.fraction, dtype=np.float64)
    return decoded


def uniforms(seed: bytes | None = None) -> Uniforms:
    """Uniform numbers for stochastic rounding, from the keystream of AES-256-CTR.

    Args:
        seed: 32 bytes; None: fresh ones from the operating system.
    """
    stream = Cipher(algorithms.AES(seed or os.urandom(32)), modes.CTR(bytes(16))).encryptor()

    def draw(count: int) -> NDArray[np.float64]:
        words = np.frombuffer(stream.update(bytes(8 * count)), dtype="<u8")
        made: NDArray[np.float64] = np.multiply(words >> np.uint64(11), 2.0**-53, dtype=np.float64)
        return made

    return draw


def to_integers(
    values: NDArray[Any],
    ring: Ring,
    *,
    factor: float,
    stochastic: Uniforms | None,
    refuse: bool,
    room: NDArray[np.float64] | None = None,
) -> tuple[NDArray[np.int64], int]:
    """What `encode` makes, before it is reduced modulo 2^bits: |result| <= bound * 2^fraction + 1 up to factor 1."""
    if not 0 <= factor < np.inf:
        raise invalid("factor", factor, "weight / largest weight, from 0")
    shape, values = values.shape, np.atleast_1d(values)
    if values.dtype.kind in "biu" and ring.fraction == 0 and factor == 1:
        return _counts(values, ring, refuse, shape)
    # In float64 from here on: a bound that float32 cannot hold would be exceeded by what is clipped to it in float32.
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    if not (np.isfinite(low) and np.isfinite(high)):
        raise HanseError(ErrorCode.INVALID_INPUT, "values: some are not finite, which no sum can carry")
    clipped = 0
    if low < -ring.bound or high > ring.bound:
        values = values.astype(np.float64)
        clipped = int(np.count_nonzero(np.abs(values) > ring.bound))
        _check_range(clipped, max(-low, high), ring, refuse)
        np.clip(values, -ring.bound, ring.bound, out=values)
    scaled = np.empty(values.shape) if room is None else room[: values.size].reshape(values.shape)
    np.multiply(values, factor * 2.0**ring.fraction, out=scaled, dtype=np.float64)
    if stochastic is None and factor <= 1 and ring.bound * 2.0**ring.fraction < _NEAREST_BELOW:
        return _nearest(scaled).reshape(shape), clipped
    if stochastic is None:
        np.rint(scaled, out=scaled)
    else:
        whole = np.floor(scaled)
        np.subtract(scaled, whole, out=scaled)
        whole += stochastic(scaled.size).reshape(scaled.shape) < scaled
        scaled = whole
    integers = _modulo(scaled) if factor > 1 else scaled.astype(np.int64)
    return integers.reshape(shape), clipped


def _nearest(scaled: NDArray[np.float64]) -> NDArray[np.int64]:
    """The nearest integers, of two the even one, of numbers below 2^51; in their place.

    Added to 1.5 * 2^52, a number loses what is below one, by the very rounding of float64, and stands as an integer in
    the lower bits of the sum.
    """
    scaled += _LEADING
    integers = scaled.view(np.int64)
    integers -= _LEADING_BITS
    return integers


def _residues(values: NDArray[Any], ring: Ring) -> NDArray[np.int64]:
    """round(x * 2^fraction) modulo 2^64, for any number of which that is finite."""
    if values.dtype.kind in "biu" and ring.fraction == 0:
        return values.astype(np.int64)
    with np.errstate(over="ignore"):
        scaled = np.rint(np.multiply(values, 2.0**ring.fraction, dtype=np.float64))
    if not np.isfinite(scaled).all():
        raise HanseError(ErrorCode.INVALID_INPUT, "values: some are not finite, which no sum can carry")
    return _modulo(scaled)


def _modulo(whole: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole numbers modulo 2^64."""
    # Exact: the remainder of a float64 is one, and so is its difference to the modulus where it is at least half.
    rest = np.fmod(whole, 2.0**64)
    rest -= np.where(rest >= 2.0**63, 2.0**64, 0.0)
    rest += np.where(rest < -(2.0**63), 2.0**64, 0.0)
    residues: NDArray[np.int64] = rest.astype(np.int64)
    return residues


def _counts(values: NDArray[Any], ring: Ring, refuse: bool, shape: tuple[int, ...]) -> tuple[NDArray[np.int64], int]:
    bound = int(ring.bound)
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    if low >= -bound and high <= bound:
        return values.astype(np.int64).reshape(shape), 0
    clipped = int(np.count_nonzero((values > bound) | (values < -bound)))
    _check_range(clipped, max(-low, high), ring, refuse)
    within: NDArray[np.int64] = np.clip(values, -bound, bound).astype(np.int64)
    return within.reshape(shape), clipped


def _check_range(outside: int, largest: float, ring: Ring, refuse: bool) -> None:
    if refuse:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"values: {outside} are beyond the bound of {ring.bound:g}, the largest is {largest:g}",
            hint="the job's secure_aggregation.bound must cover them, or out_of_range: clip",
        )
