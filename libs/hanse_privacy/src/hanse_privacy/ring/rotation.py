"""A random rotation of an update before it is rounded to few steps, and back after the sum.

Kairouz, Liu, Steinke (2021), "The distributed discrete Gaussian mechanism", section 4: x becomes H D x, with D random
signs and H the Walsh-Hadamard matrix over the square root of its size. Norms and sums are kept, and each number becomes
about normal with the root mean square of all: a bound that few numbers reach is then many times smaller, and the steps
of a narrow ring are finer by as much.

Parameters are rotated in pieces, so that a leaf of a model is made from its own numbers alone: those that lie together
within WINDOW_BYTES of the model's file. A piece of n numbers that is no power of two is rotated twice, its first 2^k
and then its last 2^k numbers, where 2^k is the largest power below n: nothing is padded. The signs are the keystream of
the plan's seed, which is no secret: it is the same for all sites. No arithmetic but sums, differences and products of
single float64, so that all machines find the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.tensors.layout import Entry, Layout, Rule, Segment
from hanse_privacy.masks.stream import MaskStream, Purpose

WINDOW_BYTES = 128 << 10
"""Of the model's file: a leaf is a multiple of it."""

Floats = NDArray[np.float64]


def pieces(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """The pieces of adjacent parameters, as bytes [first, last) of the model's file.

    Args:
        start, stop: of the parameters, or of a leaf of them, in bytes.
    """
    while start < stop:
        until = min((start // WINDOW_BYTES + 1) * WINDOW_BYTES, stop)
        yield start, until
        start = until


class Rotation:
    """A plan's rotation. Without state: threads may share it.

    Args:
        seed: 32 bytes, the same for all sites.
    """

    def __init__(self, seed: bytes) -> None:
        self._stream = MaskStream(seed, Purpose.ROTATION)

    def rotate(self, values: NDArray[Any], start: int) -> Floats:
        """A piece (n,), rotated: of the same norm.

        Args:
            start: where it begins in the model's file, in bytes.
        """
        made = values.astype(np.float64)
        for part, signs in self._parts(made, start):
            part *= signs
            _hadamard(part)
        return made

    def restore(self, values: NDArray[Any], start: int) -> Floats:
        """The inverse of `rotate`."""
        made = values.astype(np.float64)
        for part, signs in reversed(self._parts(made, start)):
            _hadamard(part)
            part *= signs
        return made

    def _parts(self, values: Floats, start: int) -> list[tuple[Floats, Floats]]:
        """The powers of two that are rotated one after the other, each with its signs."""
        count = values.size
        if not count:
            return []
        size = 1 << count.bit_length() - 1
        parts = [values[:size]] if size == count else [values[:size], values[count - size :]]
        # Two signs of a number are less than its own bytes, so they are no other piece's.
        stream = np.frombuffer(self._stream.block(start, -(-len(parts) * size // 8)), np.uint8)
        signs: Floats = np.subtract(1.0, 2.0 * np.unpackbits(stream, count=len(parts) * size), dtype=np.float64)
        return [(part, signs[number * size : (number + 1) * size]) for number, part in enumerate(parts)]


class RotatedParameters:
    """The parameters of an update, rotated; one piece is in memory.

    Args:
        layout: of the update's file, which is the model's.
        arrays: by entry.
    """

    def __init__(self, layout: Layout, arrays: Mapping[str, NDArray[Any]], rotation: Rotation) -> None:
        self._layout, self._arrays, self._rotation = layout, arrays, rotation
        self._segments = [each for each in layout.segments if each.rule is Rule.PARAMETER]
        self._first, self._piece = -1, np.empty(0)

    def values(self, entry: Entry, start: int, stop: int) -> Floats:
        """Numbers [start, stop) of an entry, rotated."""
        at, size = self._layout.offsets[entry.name], entry.numpy.itemsize
        begin, end = at + start * size, at + stop * size
        segment = next(each for each in self._segments if each.start <= begin < each.stop)
        parts = []
        for first, last in pieces(segment.start, segment.stop):
            if first < end and begin < last:
                self._turn_to(first, last, segment)
                parts.append(self._piece[(max(begin, first) - first) // size : (min(end, last) - first) // size])
        return np.concatenate(parts)

    def _turn_to(self, first: int, last: int, segment: Segment) -> None:
        if first == self._first:
            return
        piece = piece_of(self._layout, self._arrays, segment, first, last)
        self._first, self._piece = first, self._rotation.rotate(piece, first)


def piece_of(
    layout: Layout, arrays: Mapping[str, NDArray[Any]], segment: Segment, first: int, last: int
) -> NDArray[Any]:
    """The numbers of a segment's entries in bytes [first, last) of the model's file."""
    found = []
    for entry in layout:
        at, size = layout.offsets[entry.name], entry.numpy.itemsize
        if segment.start <= at < segment.stop and at < last and first < at + entry.nbytes:
            flat = arrays[entry.name].reshape(-1)
            found.append(flat[(max(first, at) - at) // size : (min(last, at + entry.nbytes) - at) // size])
    return np.concatenate(found)


def _hadamard(x: Floats) -> None:
    """Apply the Walsh-Hadamard matrix over the square root of its size, in place; the size is a power of two."""
    rows = 1 << (x.size.bit_length() - 1) // 2
    matrix = x.reshape(rows, x.size // rows)
    _over_rows(matrix)
    turned = np.ascontiguousarray(matrix.T)
    _over_rows(turned)
    np.multiply(turned.T, x.size**-0.5, out=matrix)


def _over_rows(matrix: Floats) -> None:
    rows, columns = matrix.shape
    half = 1
    while half < rows:
        pairs = matrix.reshape(rows // (2 * half), 2, half * columns)
        first, second = pairs[:, 0], pairs[:, 1]
        difference = first - second
        first += second
        second[...] = difference
        half *= 2
