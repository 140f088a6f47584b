"""Which parameters of a round are summed, by a seed of all its sites: a masked update is as small as its sum.

Konecny et al. (2016), "Federated Learning: Strategies for Improving Communication Efficiency", random masks. Sites with
places of their own could not be summed under masks, and what a site's places were would tell of its data. So the places
follow from the plan's seed, which is no secret and is a part of what sites are asked: answers by two seeds are never
summed. Parameters are chosen in the pieces in which they are rotated (`ring.rotation.pieces`), where both are asked for
after the rotation: a leaf of a model is made of its own numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.messages.masking import Chosen
from hanse_fabric.tensors.layout import DTYPES, Entry, Layout, Rule, Segment
from hanse_privacy.masks.stream import MaskStream, Purpose
from hanse_privacy.ring import rotation as rotations
from hanse_privacy.ring.rotation import Rotation, piece_of, pieces

_DRAWN = 8
"""Bytes that are drawn for each parameter."""


class Choice:
    """The choice of a plan. Without state: threads may share it."""

    def __init__(self, chosen: Chosen) -> None:
        self._fraction = chosen.fraction
        self._stream = MaskStream(bytes.fromhex(chosen.seed), Purpose.CHOICE)

    def count(self, size: int) -> int:
        """How many are sent of a piece of so many parameters: one at least."""
        return min(size, max(1, round(self._fraction * size)))

    def places(self, size: int, start: int) -> NDArray[np.intp]:
        """Which of a piece's (size,) parameters are sent, rising: (count(size),).

        Args:
            start: where it begins in the model's file, in bytes.
        """
        # A parameter has two bytes at least, so each byte of the file has four of its own: no other piece draws these.
        drawn = np.frombuffer(self._stream.block(_DRAWN // 2 * start, _DRAWN * size), "<u8")
        count = self.count(size)
        # Whoever finds the same number in its place chooses the same, by whatever way of sorting.
        kept = np.flatnonzero(drawn <= np.partition(drawn, count - 1)[count - 1])
        return kept[:count]

    def spread(self, values: NDArray[np.float64], size: int, start: int) -> NDArray[np.float64]:
        """A piece (size,) of what was sent of it, with zeros for what was not."""
        made = np.zeros(size)
        made[self.places(size, start)] = values
        return made

    def before(self, start: int, byte: int, itemsize: int) -> int:
        """How many are sent of adjacent parameters in bytes [start, byte) of the model's file.

        Args:
            start: of all of them; `byte`: where a piece begins, or all end.
        """
        if byte == start:
            return 0
        window = rotations.WINDOW_BYTES
        border = min((start // window + 1) * window, byte)
        full, rest = divmod(byte - border, window)
        found = self.count((border - start) // itemsize) + full * self.count(window // itemsize)
        return found + (self.count(rest // itemsize) if rest else 0)


def sent_layout(layout: Layout, choice: Choice) -> Layout:
    """What is sent of a model: its buffers, and of its parameters of each dtype one entry, by the name of the first."""
    sent = [entry for entry in layout if entry.rule is not Rule.PARAMETER]
    for segment in layout.segments:
        if segment.rule is Rule.PARAMETER:
            count = choice.before(segment.start, segment.stop, DTYPES[segment.dtype].itemsize)
            sent.append(Entry(_first(layout, segment).name, segment.dtype, (count,)))
    return Layout.of(sent)


def chosen_pieces(
    layout: Layout, arrays: Mapping[str, NDArray[Any]], dtype: str, choice: Choice, rotation: Rotation | None
) -> Iterator[NDArray[Any]]:
    """What is sent of the parameters of a dtype, piece by piece, rotated first where there is a rotation."""
    itemsize = DTYPES[dtype].itemsize
    for segment in layout.segments:
        if segment.rule is Rule.PARAMETER and segment.dtype == dtype:
            for first, last in pieces(segment.start, segment.stop):
                values = piece_of(layout, arrays, segment, first, last)
                if rotation is not None:
                    values = rotation.rotate(values, first)
                yield values[choice.places((last - first) // itemsize, first)]


def _first(layout: Layout, segment: Segment) -> Entry:
    return next(entry for entry in layout if entry.nbytes and layout.offsets[entry.name] == segment.start)
