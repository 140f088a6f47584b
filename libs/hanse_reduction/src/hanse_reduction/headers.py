"""Headers of tensor files that are read by range: the model's, and the updates', which must be the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.tensors.layout import Layout, header_length, parse_header
from hanse_learning.server.reduction import Array
from hanse_reduction.sources import Input
from hanse_reduction.tallies import Refuse


def read_header(data: Input) -> tuple[bytes, Layout]:
    """Header and layout of a tensor file.

    Raises:
        HanseError: INVALID_INPUT when it is none, or is not written as Hanse writes it.
    """
    length = header_length(data.read(0, min(8, data.ref.size)))
    if length > data.ref.size:
        raise HanseError(ErrorCode.INVALID_INPUT, f"tensor file: ends within its header of {length} bytes")
    header = data.read(0, length)
    layout = parse_header(header, size=data.ref.size)
    if header != layout.header:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            "tensor file: its header is not written as Hanse writes it",
            hint="write it with hanse_fabric.tensors",
        )
    return header, layout


def compare_header(data: Input, header: bytes, layout: Layout) -> None:
    """Raises HanseError INVALID_INPUT saying in what the update's layout differs from the model's."""
    if data.ref.size == layout.size and data.read(0, len(header)) == header:
        return
    _, other = read_header(data)
    difference = layout.difference(other)
    raise HanseError(
        ErrorCode.INVALID_INPUT, f"update: {difference}", hint="update the entries that the task's model has"
    )


def check_header_bytes(participant: str, found: Array, expected: bytes, refuse: Refuse) -> None:
    """Refuse an update whose header bytes differ from the model's."""
    if found.tobytes() != expected:
        refuse(participant, HanseError(ErrorCode.INVALID_INPUT, "update: its header is not the model's"))


def common_header(opened: Mapping[str, Input], refuse: Refuse) -> tuple[bytes, Layout] | None:
    """The header that most updates have (of equals, the first's), where there is no model to tell.

    Args:
        opened: by participant.
        refuse: hears of those that have another, or none.

    Returns:
        Header and layout; None if no update has one.
    """
    read: dict[str, tuple[bytes, Layout]] = {}
    for name in sorted(opened):
        try:
            read[name] = read_header(opened[name])
        except HanseError as error:
            refuse(name, error)
    if not read:
        return None
    header, _ = Counter(header for header, _ in read.values()).most_common(1)[0]
    layout = next(layout for found, layout in read.values() if found == header)
    for name in read:
        try:
            compare_header(opened[name], header, layout)
        except HanseError as error:
            refuse(name, error)
    return header, layout
