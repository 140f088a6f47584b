"""Masks to add to and to subtract from ring elements: at a site to hide its answer, at the aggregator to take off what
is left in the sum. Any range of bytes can be done alone (`masks.stream`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

from hanse_privacy.masks.stream import MaskStream, Purpose
from hanse_privacy.pairwise.recovery import decode_recovery


class Masks:
    """A sum of masks with signs. Without state: threads may apply it to different ranges.

    Args:
        add: seeds (32 bytes each) of the masks that are added.
        subtract: of those that are subtracted.
    """

    def __init__(self, *, add: Iterable[bytes], subtract: Iterable[bytes]) -> None:
        added, subtracted = tuple(add), tuple(subtract)
        self._signed = {
            purpose: (
                [MaskStream(seed, purpose) for seed in added],
                [MaskStream(seed, purpose) for seed in subtracted],
            )
            for purpose in Purpose
        }

    def apply(self, array: NDArray[Any], first_byte: int, bits: int | None = None) -> None:
        """Mask (or unmask) ring elements of an update in place.

        Args:
            array: contiguous uint8 to uint64, any shape.
            first_byte: where in the update file's data section the array begins.
            bits: of an element; None: all that it has in memory.
        """
        self._apply(Purpose.UPDATE, array, first_byte, bits)

    def apply_tally(self, array: NDArray[Any], first_byte: int = 0, bits: int = 64) -> None:
        """The same for the elements (uint64) of a tally."""
        self._apply(Purpose.TALLY, array, first_byte, bits)

    def _apply(self, purpose: Purpose, array: NDArray[Any], first_byte: int, bits: int | None) -> None:
        added, subtracted = self._signed[purpose]
        for stream in added:
            stream.add_to(array, first_byte, bits)
        for stream in subtracted:
            stream.subtract_from(array, first_byte, bits)


def residual_masks(recovery: bytes) -> Masks:
    """What takes off a sum the masks that the survivors' and the dropped sites' secrets leave in it.

    Raises:
        HanseError: INVALID_INPUT when `recovery` is not what `coordination.recover` made.
    """
    found = decode_recovery(recovery)
    return Masks(add=found.add, subtract=found.subtract)
