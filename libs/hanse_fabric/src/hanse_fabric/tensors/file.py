"""Tensor files: arrays by name in the one layout that `tensors.layout` describes. Never pickle, anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.store.files import whole_file
from hanse_fabric.tensors.digest import Digester
from hanse_fabric.tensors.layout import Entry, Layout, header_length, parse_header

Arrays = Mapping[str, np.ndarray]


def encode_tensors(layout: Layout, arrays: Arrays) -> bytes:
    """The file's bytes.

    Args:
        layout: entries and their order.
        arrays: one array for each entry, with its shape and dtype.

    Raises:
        HanseError: INVALID_INPUT naming the entry that is missing, unknown, or of another shape or dtype.
    """
    return b"".join(_chunks(layout, arrays))


def write_tensors(
    path: Path, layout: Layout, arrays: Arrays, *, over: Path | None = None, digester: Digester | None = None,
    sync: bool = True,
) -> None:  # fmt: skip
    """Write a file, whole or not at all.

    Args:
        over, sync: as `whole_file` has them.
        digester: takes the bytes while they are written.

    Raises:
        HanseError: as `encode_tensors`; NO_SPACE when the disk is full.
    """
    with whole_file(path, over=over, sync=sync) as file:
        for chunk in _chunks(layout, arrays):
            file.write(chunk)
            if digester is not None:
                digester.update(chunk)


def decode_tensors(data: bytes | memoryview) -> tuple[Layout, dict[str, np.ndarray]]:
    """Layout and arrays of a file's bytes; the arrays are read-only views of them.

    Raises:
        HanseError: INVALID_INPUT when it is not a tensor file of this layout.
    """
    view = memoryview(data).cast("B")
    length = header_length(bytes(view[:8]))
    if len(view) < length:
        raise HanseError(ErrorCode.INVALID_INPUT, f"tensor file: {len(view)} bytes, its header alone has {length}")
    layout = parse_header(bytes(view[:length]), size=len(view))
    return layout, _views(layout, np.frombuffer(view, dtype=np.uint8), length)


def read_tensors(path: Path) -> tuple[Layout, dict[str, np.ndarray]]:
    """Layout and arrays of a file; the arrays are read-only and mapped from the disk, not read into memory.

    Raises:
        HanseError: NOT_FOUND, or INVALID_INPUT when it is not a tensor file of this layout.
    """
    layout, length = _read_layout(path)
    # As a plain array: numpy calls Python for every slice of a memmap, and for all that is reckoned of it.
    mapped = np.memmap(path, dtype=np.uint8, mode="r").view(np.ndarray)
    return layout, _views(layout, mapped, length)


def layout_of(source: Path | bytes | memoryview) -> Layout:
    """The layout of a file, or of its bytes."""
    if isinstance(source, Path):
        return _read_layout(source)[0]
    return decode_tensors(source)[0]


def own_header(size: int, read: Callable[[int, int], bytes]) -> tuple[bytes, int] | None:
    """The header that this module writes for a tensor file, and where the file's data begin; None: it has that header.

    One model that is written in many ways would have many digests, and the digest is its name.

    Args:
        size: of the file, in bytes.
        read: gives the bytes of it at an offset, of a length.

    Raises:
        HanseError: INVALID_INPUT when it is not a tensor file of this layout; what `read` raises.
    """
    length = header_length(read(0, min(8, size)))
    if size < length:
        raise HanseError(ErrorCode.INVALID_INPUT, f"tensor file: {size} bytes, its header alone has {length}")
    header = read(0, length)
    layout = parse_header(header, size=size)
    return None if header == layout.header else (layout.header, length)


def is_own(path: Path) -> bool:
    """Whether a tensor file has the header that this module writes.

    Raises:
        HanseError: INVALID_INPUT when it is not a tensor file of this layout.
    """
    with path.open("rb") as file:

        def read(offset: int, length: int) -> bytes:
            file.seek(offset)
            return file.read(length)

        return own_header(path.stat().st_size, read) is None


def layout_like(arrays: Arrays, template: Mapping[str, Entry] | None = None) -> Layout:
    """A layout for arrays: parameters where they are floats, buffers of the newest where they are integers, but for
    entries that `template` describes otherwise."""
    from hanse_fabric.tensors.layout import Rule, dtype_name

    def entry(name: str, array: np.ndarray) -> Entry:
        rule = Rule.PARAMETER if array.dtype.kind == "f" else Rule.KEEP_NEWEST
        return Entry(name, dtype_name(array.dtype), tuple(array.shape), rule)

    described = template or {}
    return Layout.of(described.get(name, entry(name, array)) for name, array in arrays.items())


def _read_layout(path: Path) -> tuple[Layout, int]:
    try:
        with path.open("rb") as file:
            length = header_length(file.read(8))
            file.seek(0)
            return parse_header(_read(file, length), size=path.stat().st_size), length
    except FileNotFoundError:
        raise HanseError(ErrorCode.NOT_FOUND, f"tensor file {path.name}: there is no such file") from None


def _read(file: BinaryIO, length: int) -> bytes:
    data = file.read(length)
    if len(data) < length:
        raise HanseError(ErrorCode.INVALID_INPUT, f"tensor file: {len(data)} bytes, its header alone has {length}")
    return data


def _views(layout: Layout, data: np.ndarray, length: int) -> dict[str, np.ndarray]:
    # The header of a file that others wrote may be padded otherwise, so offsets count from its own end.
    arrays = {}
    for entry in layout:
        start = layout.offsets[entry.name] - layout.data_start + length
        array = data[start : start + entry.nbytes].view(entry.numpy).reshape(entry.shape)
        array.flags.writeable = False
        arrays[entry.name] = array
    return arrays


def _chunks(layout: Layout, arrays: Arrays) -> Iterator[bytes | memoryview]:
    names = {entry.name for entry in layout}
    if names != arrays.keys():
        raise invalid("arrays", sorted(arrays.keys() ^ names), "the layout's entries, all and no others")
    yield layout.header
    for entry in layout:
        array = np.asarray(arrays[entry.name])
        if array.shape != entry.shape or array.dtype != entry.numpy:
            raise invalid(
                f"entry {entry.name}", f"{array.dtype}{list(array.shape)}", f"{entry.numpy}{list(entry.shape)}"
            )
        yield np.ascontiguousarray(array).data.cast("B") if array.size else b""
