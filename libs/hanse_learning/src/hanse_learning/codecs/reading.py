"""Decodes frames of an encoded update, each by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.tensors.layout import Layout, parse_header
from hanse_learning.codecs.bytes_in import BytesIn
from hanse_learning.codecs.chain import Chain, Positions
from hanse_learning.codecs.factors import Columns, RowsOf, check_size, read_columns
from hanse_learning.codecs.frames import (
    ROW,
    Frame,
    Head,
    Portion,
    check_table,
    draw_of,
    frames_of,
    head_length,
    head_of,
    read_head,
)


def decode_frame(
    frame: Frame, packed: bytes, chain: Chain, seed: int, columns: Columns = MappingProxyType({})
) -> NDArray[np.uint8]:
    """The bytes of the decoded file that a frame stands for.

    Args:
        packed: verified.
        seed: the head's.
        columns: of the update's products.

    Raises:
        HanseError: INVALID_INPUT for what `write_encoded` does not make.
    """
    data = BytesIn(chain.unpacked(packed, frame.most), f"the frame of byte {frame.start}")
    made = np.empty(frame.stop - frame.start, np.uint8)
    at = 0
    for portion in frame.portions:
        size = portion.size * frame.dtype.itemsize
        made[at : at + size] = _portion(frame, portion, data, chain, seed, columns).view(np.uint8)
        at += size
    data.end()
    return made


def _portion(
    frame: Frame, portion: Portion, data: BytesIn, chain: Chain, seed: int, columns: Columns
) -> np.ndarray[Any, Any]:
    if not frame.parameter:
        if (told := data.number("u1")) != Positions.RAW:
            raise data.bad(f"begins a portion of a buffer with {told}, 0 was expected")
        return data.array(frame.dtype.str, portion.size)
    sparsifier, seeded = chain.sparsifier, None
    if sparsifier is not None and sparsifier.seeded:
        nothing = np.zeros(portion.size, frame.dtype)
        seeded = chain.choose(nothing, portion.entry.name, draw_of(seed, portion.index, 1))
    found = columns.get(portion.entry.name)
    rows = None if found is None else RowsOf(found, portion.first, portion.last)
    return np.ascontiguousarray(chain.read(data, frame.dtype, seeded, portion.size, rows))


def decode(data: NDArray[np.uint8], chain: Chain, *, most: int) -> tuple[Layout, dict[str, np.ndarray[Any, Any]]]:
    """Layout and arrays of a whole encoded file that has its layout in it, as models have.

    Args:
        data: (n,), verified; mapped from a file, perhaps, for it is read once, from front to back.
        most: bytes that it may become.

    Raises:
        HanseError: INVALID_INPUT.
    """
    at = head_length(bytes(data[:12]))
    head = read_head(bytes(data[:at]))
    if head.size > most:
        raise invalid("encoded model's size", head.size, f"at most {most} bytes, as the task says")
    end = at + ROW.itemsize * head.frames
    if not 0 < head.header <= len(data) - end:
        raise invalid("encoded model's layout", head.header, f"1 to {len(data) - end} bytes, for the model is encoded")
    layout = parse_header(bytes(data[end : end + head.header]), size=head.size)
    check_head(head, layout, chain.sections)
    table = np.frombuffer(data[at:end], ROW)
    check_table(table, frames_of(layout))
    made = np.empty(layout.data_bytes, np.uint8)
    at, start = end + head.header, layout.data_start
    check_size(layout, head.columns, chain)
    columns = read_columns(layout, bytes(data[at : at + head.columns]), chain)
    at += head.columns
    for frame, length in zip(frames_of(layout), table["length"].tolist(), strict=True):
        made[frame.start - start : frame.stop - start] = decode_frame(
            frame, bytes(data[at : at + length]), chain, head.seed, columns
        )
        at += length
    if at != len(data):
        raise invalid("encoded model", len(data), f"{at} bytes, as its table says")
    arrays = {}
    for entry in layout:
        first = layout.offsets[entry.name] - start
        arrays[entry.name] = made[first : first + entry.nbytes].view(entry.numpy).reshape(entry.shape)
    return layout, arrays


def check_head(head: Head, layout: Layout, expected: Sequence[Mapping[str, Any]]) -> None:
    """Check that an update is of a layout, and encoded as the job says.

    Args:
        expected: sections with every setting (`Chain.sections`).

    Raises:
        HanseError: INVALID_INPUT.
    """
    if list(head.chain) != list(expected):
        raise invalid("encoded update's codecs", _names(head.chain), f"the job's codec.up: {_names(expected)}")
    wanted = head_of(layout, tuple(expected), head.seed, with_layout=head.header > 0, columns=head.columns)
    if head != wanted:
        raise HanseError(
            ErrorCode.INVALID_INPUT, "update: it was encoded in another layout than the model's",
            hint="update the entries that the task's model has",
        )  # fmt: skip


def _names(chain: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(
        " ".join([str(each.get("name")), *(f"{k}={v}" for k, v in each.items() if k != "name" and v is not None)])
        for each in chain
    )
