"""Masks that serve one request: what was asked goes into the seed, so masks of two requests have nothing in common."""

from __future__ import annotations

from dataclasses import dataclass

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand


@dataclass(frozen=True, slots=True)
class Asked:
    """What a site is asked, as digests of 32 bytes (`hanse_learning.binding`): of the request, and of its work."""

    request: bytes
    work: bytes


def bound_seed(seed: bytes, request: bytes | None) -> bytes:
    """The seed (32 bytes) of the masks of an answer to one request.

    Args:
        seed: 32 bytes, uniform.
        request: digest of what was asked; None: of a hub of release 0.1.0, and the seed is taken as it is.
    """
    if request is None:
        return seed
    return HKDFExpand(SHA256(), 32, info=b"hanse bound mask 1" + request).derive(seed)
