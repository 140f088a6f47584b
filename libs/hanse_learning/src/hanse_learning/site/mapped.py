"""Arrays that lie in files: of data larger than memory the system keeps there what it has room for.

Such a file has no name and is open to nobody else. It goes with the last array of it, and so with the process, however
that ends.
"""

from __future__ import annotations

import math
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hanse_fabric.durable import space_errors
from hanse_fabric.errors import ErrorCode, unfit

Ahead = Callable[[Iterable[int]], None]
"""Is told which rows of an array will soon be read."""
BLOCK_BYTES = 8 << 20
"""Of an array that are worked on at once."""
_SPARE = 16 << 20


def mapped(shape: Sequence[int], dtype: DTypeLike, folder: Path) -> NDArray[Any]:
    """An array of zeros in a file of its own, all of whose room on the disk is taken now.

    Raises:
        HanseError: NO_SPACE; which folder, bytes needed and bytes free are for who may see the data.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if not size:
        return np.zeros(tuple(shape), dtype)
    _require_space(folder, size)
    # Readable by its owner alone (0600), and without a name from the start where the system can do that.
    with space_errors(folder), tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, size)
        mapping = mmap.mmap(file.fileno(), size)
    # Batches are drawn from everywhere: to read ahead would read what is not wanted. `in_blocks` asks by itself.
    mapping.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(mapping, dtype).reshape(tuple(shape))


class Growing:
    """A file like those of `mapped` arrays, whose length is not known before.

    Attributes:
        size: bytes that were written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - for as long as it grows
        self.size = 0

    def append(self, data: bytes | bytearray) -> None:
        """Write behind what is there.

        Raises:
            HanseError: NO_SPACE.
        """
        _require_space(self._folder, len(data))
        with space_errors(self._folder), memoryview(data) as left:
            done = 0
            while done < len(left):
                done += self._file.write(left[done:])
        self.size += len(data)

    def whole(self) -> NDArray[np.uint8]:
        """All of it (size,), to which nothing is added any more."""
        with self._file as file:
            if not self.size:
                return np.zeros(0, np.uint8)
            os.fsync(file.fileno())
            return np.frombuffer(mmap.mmap(file.fileno(), self.size), np.uint8)


def is_mapped(array: NDArray[Any]) -> bool:
    """Whether it lies in a file, wholly."""
    return _mapping(array) is not None


def in_memory(array: NDArray[Any]) -> int:
    """Bytes of memory that it takes for good."""
    return 0 if is_mapped(array) else array.nbytes


def in_blocks(array: NDArray[Any]) -> Iterator[slice]:
    """Rows of a mapped array (n, ...) that are to be worked on at once, from the first to the last; those of any other
    are all in one block."""
    rows = len(array) if not is_mapped(array) else rows_at_once(array)
    for start in range(0, len(array), max(1, rows)):
        block = slice(start, min(start + rows, len(array)))
        will_need(array[block])
        yield block


def will_need(part: NDArray[Any]) -> None:
    """A part in one piece of a mapped array is used soon: the system reads it at once, beside what goes on here."""
    if (mapping := _mapping(part)) is not None and part.size:
        start, length = _place(mapping, part)
        mapping.madvise(mmap.MADV_WILLNEED, start, length)


def ahead_of(array: NDArray[Any]) -> Ahead | None:
    """For an array (n, ...); None where it is in memory.

    The system reads rows that it is told of at once. To wait for each page when it is used takes five times as long.
    """
    if (mapping := _mapping(array)) is None:
        return None
    row, begins = array[:1].nbytes, _offset(mapping, array)

    def advise(rows: Iterable[int]) -> None:
        for at in rows:
            start = begins + at * row
            page = start - start % mmap.PAGESIZE
            mapping.madvise(mmap.MADV_WILLNEED, page, start + row - page)

    return advise


def rows_at_once(array: NDArray[Any]) -> int:
    """How many rows of an array (n, ...) are a block."""
    return max(1, BLOCK_BYTES // max(1, array[:1].nbytes))


def written(array: NDArray[Any]) -> None:
    """Wait until a mapped array, or a part of it, is on the disk: the system may then forget it."""
    if (mapping := _mapping(array)) is not None and array.size:
        start, length = _place(mapping, array)
        mapping.flush(start, length)


def parted(
    array: NDArray[Any], first: NDArray[np.int64], second: NDArray[np.int64], folder: Path
) -> tuple[NDArray[Any], NDArray[Any]]:
    """(rows `first`, rows `second`) of a mapped array; it is used up, for the former are moved within its file.

    Args:
        first, second: (k,) ascending.

    Raises:
        HanseError: NO_SPACE.
    """
    other = mapped((len(second), *array.shape[1:]), array.dtype, folder)
    part(array, first, second, other)
    return array[: len(first)], other


def part(array: NDArray[Any], first: NDArray[np.int64], second: NDArray[np.int64], other: NDArray[Any]) -> None:
    """Write rows `second` of an array to `other`, and then move rows `first` to its own front."""
    _copy(array, second, other)
    _copy(array, first, array)


def _copy(source: NDArray[Any], rows: NDArray[np.int64], target: NDArray[Any]) -> None:
    """Ascending rows are never written over before they are read: the k-th of them stands at k or behind it."""
    at_once = rows_at_once(source)
    for start in range(0, len(rows), at_once):
        some = rows[start : start + at_once]
        will_need(source[some[0] : some[-1] + 1])
        place = target[start : start + len(some)]
        place[...] = source[some]
        written(place)


def _mapping(array: Any) -> mmap.mmap | None:
    while isinstance(array, np.ndarray):
        array = array.base
    found = array.obj if isinstance(array, memoryview) else array
    return found if isinstance(found, mmap.mmap) else None


def _place(mapping: mmap.mmap, part: NDArray[Any]) -> tuple[int, int]:
    """(offset of the page that a part begins in, bytes until its end)."""
    offset = _offset(mapping, part)
    start = offset - offset % mmap.PAGESIZE
    return start, offset + part.nbytes - start


def _offset(mapping: mmap.mmap, part: NDArray[Any]) -> int:
    begins: int = np.frombuffer(mapping, np.uint8).__array_interface__["data"][0]
    return int(part.__array_interface__["data"][0]) - begins


def _require_space(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < size + _SPARE:
        raise unfit(
            "data larger than memory need more of the site's disk than is free",
            f"{folder}: {size} bytes, {free} are free",
            code=ErrorCode.NO_SPACE,
            hint="free space on the site's volume, name a folder of another disk by HANSE_SCRATCH (--scratch), "
            "or raise the policy's limits.memory_mib",
        )
