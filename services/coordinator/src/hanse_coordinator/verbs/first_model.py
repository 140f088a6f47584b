"""An owner's first model as the hub stores it: a file whose header somebody else's program wrote is written anew.

A model is named by the digest of its file, and sites answer under masks for one file of it alone, the one that Hanse
writes (`hanse_fabric.tensors.layout`). At most one leaf is in memory, whatever the size of the model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

from hanse_fabric.messages import ObjectRef
from hanse_fabric.store.port import ObjectStore
from hanse_fabric.tensors.digest import LEAF_BYTES, combine_leaves


def written_anew(store: ObjectStore, given: ObjectRef, key_of: Callable[[str], str]) -> ObjectRef:
    """The model itself, where it has the header that Hanse writes; else one with that header and the same data.

    Args:
        given: a model that rests in the store, and has the digest that it says.
        key_of: where an object rests, by its digest.

    Raises:
        HanseError: INVALID_INPUT when it is no tensor file, or its entries stand in another order; UNAVAILABLE.
    """
    from hanse_fabric.tensors.file import own_header  # loads numpy, which a coordinator seldom needs

    key = given.key or ""

    def read(offset: int, length: int) -> bytes:
        buffer = bytearray(length)
        store.read_into(key, offset, memoryview(buffer))
        return bytes(buffer)

    found = own_header(given.size, read)
    if found is None:
        return given
    header, start = found
    leaves = tuple(hashlib.sha256(leaf).hexdigest() for leaf in _leaves(store, key, given.size, header, start))
    digest, size = combine_leaves(leaves), len(header) + given.size - start
    made = key_of(digest)
    if not store.exists(made):
        _store(store, made, _leaves(store, key, given.size, header, start))
    return ObjectRef(digest=digest, size=size, leaves=leaves if len(leaves) > 1 else (), key=made)


def _leaves(store: ObjectStore, key: str, size: int, header: bytes, start: int) -> Iterator[bytearray]:
    """The leaves of the file that has `header` in place of the first `start` bytes."""
    whole = len(header) + size - start
    for begin in range(0, whole, LEAF_BYTES):
        leaf = bytearray(min(LEAF_BYTES, whole - begin))
        of_header = header[begin : begin + len(leaf)]
        leaf[: len(of_header)] = of_header
        if len(of_header) < len(leaf):
            at = begin + len(of_header) - len(header)
            store.read_into(key, start + at, memoryview(leaf)[len(of_header) :])
        yield leaf


def _store(store: ObjectStore, key: str, leaves: Iterator[bytearray]) -> None:
    upload = store.open_upload(key)
    try:
        etags = [
            (number, store.put_part(key, upload, number, memoryview(leaf))) for number, leaf in enumerate(leaves, 1)
        ]
        store.close_upload(key, upload, etags)
    except BaseException:
        store.abort_upload(key, upload)
        raise
