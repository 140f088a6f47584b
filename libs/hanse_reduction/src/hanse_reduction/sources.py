"""Where an object's bytes are read from, whether it came inline, on the bus, or lies in the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ObjectRef
from hanse_fabric.store.port import ObjectStore, RangeReader
from hanse_fabric.tensors.refs import check_leaves

_ANNOUNCE = "announce size and digest of the very bytes that are sent"


class Source(Protocol):
    """Bytes by range. Methods block."""

    def size(self) -> int:
        """How many bytes there are really; NOT_FOUND if the object is absent."""
        ...

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` from byte `offset` on; INVALID_INPUT if the object ends before."""
        ...

    def open_range(self, offset: int, length: int) -> RangeReader:
        """Begin to read bytes from front to back; INVALID_INPUT if the object ends before."""
        ...


@dataclass(slots=True)
class MemoryRange:
    """What is left of a range of bytes that are here already."""

    left: memoryview

    def read_into(self, buffer: memoryview) -> None:
        buffer[:] = self.left[: len(buffer)]
        self.left = self.left[len(buffer) :]

    def close(self) -> None:
        """Nothing is held open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class MemorySource:
    """Bytes that are here already."""

    data: bytes

    def size(self) -> int:
        return len(self.data)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self.open_range(offset, len(buffer)).read_into(buffer)

    def open_range(self, offset: int, length: int) -> MemoryRange:
        if offset + length > len(self.data):
            raise HanseError(ErrorCode.INVALID_INPUT, f"object: ends at {len(self.data)} bytes, more were expected")
        return MemoryRange(memoryview(self.data)[offset : offset + length])


@dataclass(frozen=True, slots=True)
class StoreSource:
    """An object in the store."""

    store: ObjectStore
    key: str

    def size(self) -> int:
        return self.store.size(self.key)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self.store.read_into(self.key, offset, buffer)

    def open_range(self, offset: int, length: int) -> RangeReader:
        return self.store.open_range(self.key, offset, length)


@dataclass(frozen=True, slots=True)
class Input:
    """A referenced object and its bytes. `leaf(i)` is the digest that its i-th leaf must have."""

    ref: ObjectRef
    source: Source

    def leaf(self, index: int) -> str:
        return self.ref.leaves[index] if self.ref.leaves else self.ref.digest

    def read(self, offset: int, size: int) -> bytes:
        buffer = bytearray(size)
        self.source.read_into(offset, memoryview(buffer))
        return bytes(buffer)

    def check_size(self) -> None:
        """Raises HanseError: TOO_LARGE or INVALID_INPUT when there are more or fewer bytes than were announced."""
        actual = self.source.size()
        if actual > self.ref.size:
            raise HanseError(
                ErrorCode.TOO_LARGE, f"object of {actual} bytes, {self.ref.size} were announced", hint=_ANNOUNCE
            )
        if actual < self.ref.size:
            raise HanseError(
                ErrorCode.INVALID_INPUT, f"object of {actual} bytes, {self.ref.size} were announced", hint=_ANNOUNCE
            )


def open_input(ref: ObjectRef, store: ObjectStore | None, fetched: bytes | None = None) -> Input:
    """The bytes behind a reference.

    Args:
        fetched: the bytes from the bus, for a reference that is neither inline nor in the store.

    Raises:
        HanseError: TAMPERED when the leaves do not give the digest; NOT_FOUND when the bytes are nowhere.
    """
    check_leaves(ref)
    if ref.inline is not None:
        return Input(ref, MemorySource(ref.inline))
    if ref.key is not None:
        if store is None:
            raise HanseError(
                ErrorCode.UNAVAILABLE, "no object store is configured, an input lies in one", hint="set HANSE_STORE_URL"
            )
        return Input(ref, StoreSource(store, ref.key))
    if fetched is None:
        raise HanseError(ErrorCode.NOT_FOUND, f"object {ref.digest[:12]} is not on the bus (any more)")
    return Input(ref, MemorySource(fetched))
