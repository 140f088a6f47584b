"""The sum of several participants' masks, from their seeds: what the compensator makes and the aggregator subtracts.

Any replica makes the same bytes. Memory is a few ranges, whatever the model's size and however many seeds.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from io import BytesIO
from typing import BinaryIO

import numpy as np

from hanse_fabric.errors import invalid
from hanse_fabric.messages.masking import MaskShape
from hanse_fabric.tensors.layout import Entry, Layout, Rule
from hanse_privacy.masks.stream import MaskStream, Purpose
from hanse_privacy.ring.words import DTYPES, WIDTHS, wire_bytes

RANGE_BYTES = 512 << 10
"""Summed at a time by a thread, as they are in memory: they stay in a core's cache, beside the keystream, while every
seed's mask is added."""

_Part = memoryview
"""Bytes of a range, as they stand in the file."""


def total_layout(shape: MaskShape) -> Layout:
    """The layout of an update's mask sum: the arrays `u64` and `u32`, either of which may be empty, and `u48`, `u40`,
    `u16` and `u8` where there are such elements."""
    return Layout.of(Entry(f"u{bits}", f"U{bits}", (count,), Rule.RING) for bits, count in shape.counts.items())


def mask_total(seeds: Sequence[bytes], shape: MaskShape, out: BinaryIO, *, threads: int | None = None) -> None:
    """Write the sum of the update masks of `seeds` as a tensor file of `total_layout(shape)`.

    Args:
        seeds: 32 bytes each; their order does not matter.
        out: is written from its position on.
        threads: how many sum ranges at a time; None: one a core, 4 at most.

    Raises:
        HanseError: INVALID_INPUT for no seeds, or one of another length.
    """
    out.write(total_layout(shape).header)
    workers = threads or min(4, os.cpu_count() or 1)
    out.writelines(_sums(_checked(seeds), shape, workers))


def tally_mask_total(seeds: Sequence[bytes], count: int) -> bytes:
    """The sum of the tally masks of `seeds`: a tensor file with the array `u64` of `count` elements.

    Raises:
        HanseError: INVALID_INPUT for no seeds, or one of another length.
    """
    layout = Layout.of((Entry("u64", "U64", (count,), Rule.RING),))
    out = BytesIO()
    out.write(layout.header)
    total = np.zeros(count, dtype="<u8")
    for seed in _checked(seeds):
        MaskStream(seed, Purpose.TALLY).add_to(total, 0)
    out.write(total.data)
    return out.getvalue()


def _checked(seeds: Sequence[bytes]) -> Sequence[bytes]:
    if not seeds:
        raise invalid("seeds", 0, "the seeds of at least one participant")
    return seeds


def _sums(seeds: Sequence[bytes], shape: MaskShape, threads: int) -> Iterator[_Part]:
    """The data section's ranges in order, at most two a thread in memory."""
    pending: deque[Future[_Part]] = deque()
    # Each key is derived once: that takes as long as some ten thousand bytes of its keystream.
    streams = [MaskStream(seed, Purpose.UPDATE) for seed in seeds]
    with ThreadPoolExecutor(threads, thread_name_prefix="masks") as pool:
        for bits, start, count in _ranges(shape):
            pending.append(pool.submit(_sum, streams, bits, start, count))
            if len(pending) > 2 * threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _sum(streams: Sequence[MaskStream], bits: int, start: int, count: int) -> _Part:
    total = np.zeros(count, dtype=DTYPES[bits])
    for stream in streams:
        stream.add_to(total, start, bits)
    return wire_bytes(total, bits)


def _ranges(shape: MaskShape) -> Iterator[tuple[int, int, int]]:
    """(bits, first byte in the data section, elements), in file order."""
    base = 0
    for bits, count in shape.counts.items():
        width = WIDTHS[bits]
        step = RANGE_BYTES // DTYPES[bits].itemsize
        for first in range(0, count, step):
            yield bits, base + first * width, min(step, count - first)
        base += count * width
