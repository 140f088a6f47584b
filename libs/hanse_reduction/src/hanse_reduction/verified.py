"""Reads parts of an object from front to back, and checks the digest of every leaf that holds a part.

A masked update is laid out otherwise than the model: the elements of one leaf of the model lie in several leaves of the
update. So a reader goes through whole leaves, gives out the parts that are asked for, and hashes what lies between.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.store.files import READ_BYTES
from hanse_fabric.store.port import RangeReader
from hanse_fabric.tensors.digest import LEAF_BYTES
from hanse_reduction.sources import Input

Extent = tuple[int, int]
"""First byte and last + 1 of adjacent whole leaves."""


def extents_of(parts: Iterable[Extent], size: int) -> tuple[Extent, ...]:
    """The leaves that must be read for `parts` (byte ranges, in the order of reading) of an object of `size` bytes.

    Parts that follow each other closely share an extent; one that lies behind the part before begins another.
    """
    found: list[Extent] = []
    position = 0
    for start, stop in parts:
        first, last = start // LEAF_BYTES * LEAF_BYTES, min(-(-stop // LEAF_BYTES) * LEAF_BYTES, size)
        if found and first <= found[-1][1] and start >= position:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
        position = stop
    return tuple(found)


class ObjectReader(ABC):
    """Gives out an object's bytes from front to back until the object fails: then it is told of, and no more is read.

    Attributes:
        failed: told of an object that is missing, too short, or tampered with. If it returns, nothing more is read.
    """

    name: str
    failed: Callable[[HanseError], None]
    bytes_read: int
    _dead: bool

    def read_into(self, at: int, target: memoryview) -> bool:
        """Fill `target` (bytes) from byte `at` on; False if the object has failed."""
        if not self._dead:
            self._guard(lambda: self._read(at, target))
        return not self._dead

    @abstractmethod
    def open(self) -> None:
        """Ask for what is read first, so that the store fetches while others are read."""

    @abstractmethod
    def _read(self, at: int, target: memoryview) -> None: ...

    def _guard(self, act: Callable[[], None]) -> None:
        try:
            act()
        except HanseError as error:
            # What concerns the store itself is not the object's fault.
            if error.code not in (ErrorCode.NOT_FOUND, ErrorCode.INVALID_INPUT, ErrorCode.TAMPERED):
                raise
            self._dead = True
            self.failed(error)

    def _tampered(self, part: str) -> HanseError:
        return HanseError(
            ErrorCode.TAMPERED, f"{self.name}: {part} does not have the digest that was announced",
            hint="they are not the bytes that the site signed; look at its code, its disk, and what lies between",
        )  # fmt: skip


@dataclass(slots=True)
class VerifiedReader(ObjectReader):
    """Gives out byte ranges of one object in the order of `extents`.

    Attributes:
        name: what the object is, for messages.
        extents: from `extents_of` for exactly the parts that will be read.
        stack: closes what is opened.
        bytes_read: so far.
    """

    data: Input
    name: str
    extents: tuple[Extent, ...]
    failed: Callable[[HanseError], None]
    stack: ExitStack
    bytes_read: int = 0
    _position: int = 0
    _stop: int = 0
    _next: int = 0
    _reader: RangeReader | None = None
    _dead: bool = False
    _hashed: hashlib._Hash = field(default_factory=hashlib.sha256)
    _skipped: bytearray = field(default_factory=bytearray)

    def open(self) -> None:
        """See `ObjectReader`."""
        if self.extents and not self._dead and self._next == 0:
            self._guard(self._advance)

    def finish(self) -> None:
        """Read the rest of the last leaf, so that all that was given out is verified."""
        if not self._dead and self._reader is not None:
            self._guard(lambda: self._skip(self._stop - self._position))

    def _read(self, at: int, target: memoryview) -> None:
        while self._reader is None or not self._position <= at < self._stop:
            self._advance()
        self._skip(at - self._position)
        self._take(target)

    def _advance(self) -> None:
        if self._reader is not None:
            self._skip(self._stop - self._position)
            self._reader.close()
        self._position, self._stop = self.extents[self._next]
        self._next += 1
        self._reader = self.stack.enter_context(
            self.data.source.open_range(self._position, self._stop - self._position)
        )
        self._hashed = hashlib.sha256()

    def _skip(self, count: int) -> None:
        if count and not self._skipped:
            self._skipped = bytearray(READ_BYTES)
        while count > 0:
            size = min(count, READ_BYTES)
            self._take(memoryview(self._skipped)[:size])
            count -= size

    def _take(self, target: memoryview) -> None:
        """Fill `target`, a little at a time, hashed while it is in the processor's cache, up to a leaf's end."""
        done = 0
        while done < len(target):
            left = LEAF_BYTES - self._position % LEAF_BYTES
            view = target[done : done + min(READ_BYTES, left)]
            assert self._reader is not None  # noqa: S101
            self._reader.read_into(view)
            self._hashed.update(view)
            done += len(view)
            self._position += len(view)
            self.bytes_read += len(view)
            if self._position % LEAF_BYTES == 0 or self._position == self.data.ref.size:
                self._check((self._position - 1) // LEAF_BYTES)

    def _check(self, index: int) -> None:
        if self._hashed.hexdigest() != self.data.leaf(index):
            raise self._tampered(f"leaf {index}")
        self._hashed = hashlib.sha256()


def raise_it(error: HanseError) -> None:
    """What `failed` is where nothing can be reduced without the object."""
    raise error
