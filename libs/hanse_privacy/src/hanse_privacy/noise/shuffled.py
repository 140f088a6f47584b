"""Noise in the mode `oblivious-shuffled`: a site's part, and the shuffler's (`hanse_privacy.noise.parts` says why)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.masking import MaskShape
from hanse_privacy.noise.exact import Integers, check_scale
from hanse_privacy.noise.parts import Parts, width_for
from hanse_privacy.noise.polya import polya_difference
from hanse_privacy.noise.source import NoiseSource


class PairedNoise:
    """One site's noise for one sum: `pairs` pairs of parts and one of its own make a Laplace variable, whichever of
    each pair is chosen.

    Args:
        steps: the scale, in steps of the ring's grid.
        pairs: how many pairs.
    """

    def __init__(self, steps: int, pairs: int, source: NoiseSource) -> None:
        check_scale(steps)
        self._steps, self._pairs, self._source = steps, pairs, source
        self._differences: list[Integers] = []

    def draw(self, count: int) -> Integers:
        """Noise of the next `count` coordinates, as the site adds it: its own part, and the first of each pair."""
        parts = self._pairs + 1
        drawn = polya_difference(self._steps, parts, (2 * self._pairs + 1) * count, self._source).reshape(-1, count)
        first, second = drawn[: self._pairs], drawn[self._pairs : -1]
        self._differences.append(second - first)
        total: Integers = first.sum(axis=0) + drawn[-1]
        return total

    @property
    def differences(self) -> Integers:
        """D of all coordinates that were drawn: (pairs, count)."""
        return np.concatenate(self._differences, axis=1)

    def parts(self) -> Parts:
        """The differences, for the shuffler."""
        width, differences = width_for(self._steps), self.differences
        return Parts(self._pairs, differences.shape[1], width, pack(differences, width))


def pack(differences: Integers, width: int) -> bytes:
    """Differences, (pairs, count), as `Parts.values`.

    Raises:
        HanseError: INTERNAL for one that the width does not hold, which does not happen (below e^-60).
    """
    if np.abs(differences).max(initial=0) >= 1 << (8 * width - 1):
        raise HanseError(ErrorCode.INTERNAL, f"noise beyond 64 scales, in {width} bytes: draw it again")
    packed = np.ascontiguousarray(differences, dtype="<i8").view(np.uint8).reshape(-1, 8)[:, :width]
    return packed.tobytes()


def choose(members: Sequence[Parts], key: bytes) -> Integers:
    """The sum over members and pairs of what the coins choose of the differences: D or nothing: (count,).

    Args:
        key: of the coins, 32 bytes: `coin_key`.

    Raises:
        HanseError: INVALID_INPUT where members have not the same count.
    """
    counts = {parts.count for parts in members}
    if len(counts) != 1:
        raise invalid("noise parts", sorted(counts), "of as many coordinates from every member")
    coins, total = NoiseSource(key), np.zeros(counts.pop(), dtype=np.int64)
    for parts in members:
        differences = unpack(parts)
        total += np.where(coins.bits(differences.size).reshape(differences.shape), differences, 0).sum(axis=0)
    return total


def subtract_choice(data: bytearray, shape: MaskShape, members: Sequence[Parts], key: bytes) -> None:
    """Take the chosen differences off a sum of masks, in place. Subtracting that sum from the masked updates then adds
    them.

    Args:
        data: a tensor file of `total_layout(shape)`; its last `shape.nbytes` are the elements.

    Raises:
        HanseError: INVALID_INPUT for a mask of both widths, or of another count than the parts'.
    """
    chosen = choose(members, key)
    if shape not in (MaskShape(u64=chosen.size), MaskShape(u32=chosen.size)):
        raise invalid("noise parts", chosen.size, f"of all elements, {shape.in_words}")
    wide = shape.u64 > 0
    elements = np.frombuffer(data, dtype="<u8" if wide else "<u4", offset=len(data) - shape.nbytes)
    elements -= chosen.view(np.uint64).astype(elements.dtype)


def unpack(parts: Parts) -> NDArray[np.int64]:
    """The differences, (pairs, count), with the sign extended."""
    raw = np.frombuffer(parts.values, dtype=np.uint8).reshape(-1, parts.width)
    wide = np.zeros((raw.shape[0], 8), dtype=np.uint8)
    wide[:, : parts.width] = raw
    wide[:, parts.width :] = np.where(raw[:, -1:] >= 128, 255, 0)
    return wide.view("<i8").astype(np.int64).reshape(parts.pairs, parts.count)
