"""Sums of masks: the same bytes from any replica, in bounded memory."""

import io
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse_fabric.errors import HanseError
from hanse_fabric.messages.masking import MaskShape
from hanse_fabric.tensors.file import decode_tensors, read_tensors
from hanse_privacy.masks.stream import MaskStream, Purpose
from hanse_privacy.masks.total import RANGE_BYTES, mask_total, tally_mask_total, total_layout


def total_bytes(seeds: list[bytes], shape: MaskShape, threads: int = 1) -> bytes:
    out = io.BytesIO()
    mask_total(seeds, shape, out, threads=threads)
    return out.getvalue()


@settings(max_examples=20, deadline=None)
@given(
    participants=st.integers(1, 6),
    counts=st.fixed_dictionaries({bits: st.integers(0, 3000) for bits in (64, 48, 40, 32, 16, 8)}),
)
def test_a_total_is_the_sum_of_each_seeds_mask(participants: int, counts: dict[int, int]) -> None:
    seeds, shape = [os.urandom(32) for _ in range(participants)], MaskShape.of(counts)
    _, arrays = decode_tensors(total_bytes(seeds, shape))
    masks = [bytes(MaskStream(seed, Purpose.UPDATE).block(0, shape.nbytes)) for seed in seeds]
    assert {name for name, array in arrays.items() if array.size} == {f"u{bits}" for bits in counts if counts[bits]}
    at = 0
    for bits in (64, 48, 40, 32, 16, 8):
        width = bits // 8
        end = at + width * counts[bits]
        summed = bytearray()
        for first in range(at, end, width):
            words = (int.from_bytes(mask[first : first + width], "little") for mask in masks)
            summed += (sum(words) % 2**bits).to_bytes(width, "little")
        found = arrays.get(f"u{bits}")
        assert (b"" if found is None else found.tobytes()) == summed
        at = end


def test_any_replica_makes_the_same_bytes_in_any_order_and_with_any_threads(tmp_path: Path) -> None:
    seeds = [os.urandom(32) for _ in range(4)]
    shape = MaskShape(
        u64=RANGE_BYTES // 8 + 3, u48=2 * RANGE_BYTES // 6 + 1, u40=RANGE_BYTES // 5 + 2, u32=3 * RANGE_BYTES // 4 + 5
    )
    alone = total_bytes(seeds, shape)
    assert total_bytes(seeds[::-1], shape, threads=3) == alone
    assert len(alone) == total_layout(shape).size
    (tmp_path / "total").write_bytes(alone)
    assert read_tensors(tmp_path / "total")[0].entries == total_layout(shape).entries


def test_the_tallys_total_has_a_keystream_of_its_own() -> None:
    seeds = [os.urandom(32) for _ in range(3)]
    _, arrays = decode_tensors(tally_mask_total(seeds, 9))
    expected = np.zeros(9, dtype=np.uint64)
    for seed in seeds:
        MaskStream(seed, Purpose.TALLY).add_to(expected, 0)
    assert list(arrays) == ["u64"]
    assert np.array_equal(arrays["u64"], expected)
    assert not np.array_equal(arrays["u64"], decode_tensors(total_bytes(seeds, MaskShape(u64=9)))[1]["u64"])


def test_memory_does_not_grow_with_the_model_or_the_participants(tmp_path: Path) -> None:
    seeds = [os.urandom(32) for _ in range(20)]
    tracemalloc.start()
    try:
        with (tmp_path / "total").open("wb") as out:
            mask_total(seeds, MaskShape(u32=16 << 20), out, threads=2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (tmp_path / "total").stat().st_size > 64 << 20
    assert peak < 20 << 20


def test_there_is_no_sum_of_nobody() -> None:
    with pytest.raises(HanseError, match="at least one participant"):
        mask_total([], MaskShape(u32=1), io.BytesIO())
    with pytest.raises(HanseError, match="at least one participant"):
        tally_mask_total([], 1)
