"""Decodes frames of an encoded update, each by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.tensors.layout import Layout
from hanse_learning.codecs.bytes_in import BytesIn
from hanse_learning.codecs.chain import Chain, Places
from hanse_learning.codecs.frames import Frame, Head, Part, draw_of, head_of


def decode_frame(frame: Frame, packed: bytes, chain: Chain, seed: int) -> NDArray[np.uint8]:
    """The bytes of the decoded file that a frame stands for.

    Args:
        packed: verified.
        seed: the head's.

    Raises:
        HanseError: INVALID_INPUT for what `write_encoded` does not make.
    """
    data = BytesIn(chain.packer.unpack(packed, frame.most), f"the frame of byte {frame.start}")
    made = np.empty(frame.stop - frame.start, np.uint8)
    at = 0
    for part in frame.parts:
        size = part.size * frame.dtype.itemsize
        made[at : at + size] = _part(frame, part, data, chain, seed).view(np.uint8)
        at += size
    data.end()
    return made


def _part(frame: Frame, part: Part, data: BytesIn, chain: Chain, seed: int) -> np.ndarray[Any, Any]:
    if not frame.parameter:
        if (told := data.number("u1")) != Places.RAW:
            raise data.bad(f"begins a part of a buffer with {told}, 0 was expected")
        return data.array(frame.dtype.str, part.size)
    sparsifier, seeded = chain.sparsifier, None
    if sparsifier is not None and sparsifier.seeded:
        nothing = np.zeros(part.size, frame.dtype)
        seeded = sparsifier.choose(nothing, part.entry.name, draw_of(seed, part.index, 1))
    return np.ascontiguousarray(chain.read(data, frame.dtype, seeded, part.size))


def check_head(head: Head, layout: Layout, expected: Sequence[Mapping[str, Any]]) -> None:
    """Check that an update is of a layout, and encoded as the job says.

    Args:
        expected: sections with every setting (`Chain.sections`).

    Raises:
        HanseError: INVALID_INPUT.
    """
    if list(head.chain) != list(expected):
        raise invalid("encoded update's codecs", _names(head.chain), f"the job's codec.up: {_names(expected)}")
    wanted = head_of(layout, tuple(expected), head.seed)
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
