"""Where an object's bytes are read from, whether it came inline, on the bus, or lies in the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ObjectRef, UpdateInput
from hanse_fabric.store.port import ObjectStore, RangeReader
from hanse_fabric.tensors.refs import check_leaves, verify_bytes

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

    def whole(self) -> bytes:
        """All bytes, verified (TOO_LARGE, INVALID_INPUT or TAMPERED)."""
        self.check_size()
        found = self.read(0, self.ref.size)
        verify_bytes(self.ref, found)
        return found

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


@dataclass(frozen=True, slots=True)
class Inputs:
    """The objects that a job names, wherever their bytes are.

    Attributes:
        store: where large ones lie; None where all jobs are small.
        fetched: the updates that came by the bus, by participant.
        sums: tallies and sums of masks that came by the bus, by digest.
    """

    store: ObjectStore | None
    fetched: Mapping[str, bytes] = field(default_factory=dict)
    sums: Mapping[str, bytes] = field(default_factory=dict)

    def open(self, ref: ObjectRef, on_bus: bytes | None = None) -> Input:
        """The bytes behind a reference; `on_bus` where they are neither inline nor in the store.

        Raises:
            HanseError: TAMPERED when the leaves do not give the digest; NOT_FOUND when the bytes are nowhere.
        """
        check_leaves(ref)
        if ref.inline is not None:
            return Input(ref, MemorySource(ref.inline))
        if ref.key is not None:
            if self.store is None:
                message = "no object store is configured, an input lies in one"
                raise HanseError(ErrorCode.UNAVAILABLE, message, hint="set HANSE_STORE_URL")
            return Input(ref, StoreSource(self.store, ref.key))
        if on_bus is None:
            raise HanseError(ErrorCode.NOT_FOUND, f"object {ref.digest[:12]} is not on the bus (any more)")
        return Input(ref, MemorySource(on_bus))

    def update(self, update: UpdateInput) -> Input:
        """A participant's update."""
        return self.open(update.ref, self.fetched.get(update.participant))

    def named(self, name: str, ref: ObjectRef, on_bus: bytes | None = None) -> Input:
        """The same, where errors name the object; `sums` has what is not given."""
        try:
            return self.open(ref, self.sums.get(ref.digest) if on_bus is None else on_bus)
        except HanseError as error:
            raise HanseError(error.code, f"{name}: {error.message}", hint=error.hint) from None
