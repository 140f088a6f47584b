"""The digest of an object: SHA-256, or for large objects SHA-256 over the digests of its leaves.

An object of at most LEAF_BYTES has its plain SHA-256. A larger one is cut into leaves of LEAF_BYTES, and its digest
is the SHA-256 of the leaves' 32-byte digests in order. So any leaf can be verified alone: shards of a reduction check
what they read, make what they write, and nobody has to read an object again to name it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

LEAF_BYTES = 8 << 20
_BLOCK_BYTES = 256 << 10


def leaf_count(size: int) -> int:
    """How many leaves an object of `size` bytes has (an empty one has one)."""
    return max(1, -(-size // LEAF_BYTES))


def combine_leaves(leaves: Iterable[str]) -> str:
    """The digest of an object from its leaves' hexadecimal digests."""
    listed = list(leaves)
    if len(listed) == 1:
        return listed[0]
    return hashlib.sha256(b"".join(bytes.fromhex(leaf) for leaf in listed)).hexdigest()


def digest_bytes(data: bytes | memoryview) -> tuple[str, tuple[str, ...]]:
    """(digest, leaves) of bytes; leaves are empty when there is only one."""
    view = memoryview(data).cast("B")
    leaves = tuple(
        hashlib.sha256(view[start : start + LEAF_BYTES]).hexdigest() for start in range(0, len(view), LEAF_BYTES)
    ) or (hashlib.sha256(b"").hexdigest(),)
    return combine_leaves(leaves), leaves if len(leaves) > 1 else ()


def digest_file(path: Path) -> tuple[str, tuple[str, ...]]:
    """(digest, leaves) of a file, reading it once, in blocks that stay in the processor's cache."""
    leaves, block = [], memoryview(bytearray(_BLOCK_BYTES))
    with path.open("rb", buffering=0) as file:
        hashed, left = hashlib.sha256(), LEAF_BYTES
        while got := file.readinto(block[: min(left, _BLOCK_BYTES)]):
            hashed.update(block[:got])
            left -= got
            if not left:
                leaves.append(hashed.hexdigest())
                hashed, left = hashlib.sha256(), LEAF_BYTES
    if left < LEAF_BYTES or not leaves:
        leaves.append(hashed.hexdigest())
    return combine_leaves(leaves), tuple(leaves) if len(leaves) > 1 else ()
