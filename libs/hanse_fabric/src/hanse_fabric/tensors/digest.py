"""The digest of an object: SHA-256, or for large objects SHA-256 over the digests of its leaves.

An object of at most LEAF_BYTES has its plain SHA-256. A larger one is cut into leaves of LEAF_BYTES, and its digest
is the SHA-256 of the leaves' 32-byte digests in order. So any leaf can be verified alone: shards of a reduction check
what they read, make what they write, and nobody has to read an object again to name it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hanse_fabric.store.port import ObjectStore

LEAF_BYTES = 8 << 20
_READ_BYTES = 256 << 10


def leaf_count(size: int) -> int:
    """How many leaves an object of `size` bytes has (an empty one has one)."""
    return max(1, -(-size // LEAF_BYTES))


def combine_leaves(leaves: Iterable[str]) -> str:
    """The digest of an object from its leaves' hexadecimal digests."""
    listed = list(leaves)
    if len(listed) == 1:
        return listed[0]
    return hashlib.sha256(b"".join(bytes.fromhex(leaf) for leaf in listed)).hexdigest()


class Digester:
    """The digest of bytes that come one after another, any number at a time: of what is being written or received."""

    def __init__(self) -> None:
        self._leaves: list[str] = []
        self._hash, self._room = hashlib.sha256(), LEAF_BYTES

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next bytes."""
        view = memoryview(data).cast("B")
        while view:
            head, view = view[: self._room], view[self._room :]
            self._hash.update(head)
            self._room -= len(head)
            if not self._room:
                self._leaves.append(self._hash.hexdigest())
                self._hash, self._room = hashlib.sha256(), LEAF_BYTES

    def result(self) -> tuple[str, tuple[str, ...]]:
        """(digest, leaves) of the bytes so far; leaves are empty when there is only one."""
        # Of no bytes there is no leaf, and SHA-256 over no digests is that of nothing.
        begun = self._room < LEAF_BYTES
        leaves = (*self._leaves, self._hash.hexdigest()) if begun else tuple(self._leaves)
        return combine_leaves(leaves), leaves if len(leaves) > 1 else ()


def whole_leaves(path: Path, leaves: tuple[str, ...]) -> int:
    """How many leaves of a file are the announced ones, from the first on."""
    with path.open("rb") as file:
        for number, leaf in enumerate(leaves):
            if hashlib.sha256(file.read(LEAF_BYTES)).hexdigest() != leaf:
                return number
    return len(leaves)


def digest_bytes(data: bytes | memoryview) -> tuple[str, tuple[str, ...]]:
    """(digest, leaves) of bytes; leaves are empty when there is only one."""
    digester = Digester()
    digester.update(data)
    return digester.result()


def digest_file(path: Path) -> tuple[str, tuple[str, ...]]:
    """(digest, leaves) of a file, reading it once, 256 KiB at a time: that stays in the processor's cache."""
    digester, buffer = Digester(), memoryview(bytearray(_READ_BYTES))
    with path.open("rb", buffering=0) as file:
        while got := file.readinto(buffer):
            digester.update(buffer[:got])
    return digester.result()


def digest_object(store: ObjectStore, key: str, size: int) -> tuple[str, tuple[str, ...]]:
    """(digest, leaves) of the first `size` bytes of a stored object, reading it once, 256 KiB at a time.

    Raises:
        HanseError: NOT_FOUND; INVALID_INPUT when the object is shorter; UNAVAILABLE.
    """
    digester, buffer = Digester(), memoryview(bytearray(_READ_BYTES))
    with store.open_range(key, 0, size) as reader:
        for start in range(0, size, _READ_BYTES):
            found = buffer[: size - start]
            reader.read_into(found)
            digester.update(found)
    return digester.result()
