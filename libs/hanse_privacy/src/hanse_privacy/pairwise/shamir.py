"""Shamir's secret sharing of 32-byte secrets, over the prime field of order 2^256 + 297 (Shamir 1979).

Any `threshold` shares give the secret; fewer say nothing about it. Whose share is whose is its abscissa: 1, 2, ...
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from hanse_fabric.errors import ErrorCode, HanseError, invalid

PRIME = 2**256 + 297
"""The smallest prime above 2^256: every 32-byte secret is an element."""

SECRET_BYTES = 32
SHARE_BYTES = 33


def split(secret: bytes, *, threshold: int, count: int) -> list[bytes]:
    """Shares of `secret` at the abscissae 1 ... count, 33 bytes each, with coefficients from the system's randomness.

    Raises:
        HanseError: INVALID_INPUT for a secret that is not 32 bytes, or unless 1 <= threshold <= count.
    """
    if len(secret) != SECRET_BYTES:
        raise invalid("secret", f"{len(secret)} bytes", f"{SECRET_BYTES} bytes")
    if not 1 <= threshold <= count:
        raise invalid("threshold", threshold, f"between 1 and the number of shares, {count}")
    polynomial = [secrets.randbelow(PRIME) for _ in range(threshold - 1)] + [int.from_bytes(secret, "big")]
    return [_evaluate(polynomial, x).to_bytes(SHARE_BYTES, "big") for x in range(1, count + 1)]


def coefficients(abscissae: Sequence[int]) -> dict[int, int]:
    """Lagrange's coefficients at zero for shares at these abscissae, which many secrets with the same holders share.

    Raises:
        HanseError: INVALID_INPUT where one is not positive, or is there twice.
    """
    if len(set(abscissae)) != len(abscissae) or any(not 0 < x < PRIME for x in abscissae):
        raise invalid("shares", list(abscissae)[:8], "at different abscissae from 1")
    found: dict[int, int] = {}
    for x in abscissae:
        above = below = 1
        for other in abscissae:
            if other != x:
                above = above * other % PRIME
                below = below * (other - x) % PRIME
        found[x] = above * pow(below, -1, PRIME) % PRIME
    return found


def combine(shares: Mapping[int, bytes], *, threshold: int, weights: Mapping[int, int] | None = None) -> bytes:
    """The secret behind shares by abscissa.

    Args:
        shares: at least `threshold`; the first of them, by abscissa, are used.
        weights: `coefficients` of exactly those that are used, where they are known.

    Raises:
        HanseError: QUORUM for fewer shares than `threshold`; INVALID_INPUT for one that is not 33 bytes or no element
            of the field; TAMPERED when together they give no 32-byte secret.
    """
    if len(shares) < threshold:
        raise HanseError(ErrorCode.QUORUM, f"shares: {len(shares)} are there, {threshold} are needed for the secret")
    used = sorted(shares)[:threshold]
    weights = coefficients(used) if weights is None else weights
    total = 0
    for x in used:
        total += weights[x] * read_share(shares[x])
    secret = total % PRIME
    if secret >> (8 * SECRET_BYTES):
        raise HanseError(ErrorCode.TAMPERED, "shares: they do not belong together, or one was altered")
    return secret.to_bytes(SECRET_BYTES, "big")


def read_share(share: bytes) -> int:
    """The field element of a share.

    Raises:
        HanseError: INVALID_INPUT.
    """
    if len(share) != SHARE_BYTES:
        raise invalid("share", f"{len(share)} bytes", f"{SHARE_BYTES} bytes")
    value = int.from_bytes(share, "big")
    if value >= PRIME:
        raise invalid("share", f"a number of {value.bit_length()} bits", "an element of the field")
    return value


def _evaluate(polynomial: Sequence[int], x: int) -> int:
    """Horner's rule; the constant term is last."""
    value = 0
    for coefficient in polynomial:
        value = (value * x + coefficient) % PRIME
    return value
