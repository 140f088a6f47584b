"""A rotation keeps norms and is taken back; few steps lose less of what is rotated."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse_fabric.messages.masking import Ring
from hanse_fabric.tensors.layout import Entry, Layout, Rule
from hanse_privacy.ring import rotation
from hanse_privacy.ring.codec import decode, encode
from hanse_privacy.ring.rotation import WINDOW_BYTES, RotatedParameters, Rotation, pieces

SEED = bytes(range(32))


@settings(max_examples=80, deadline=None)
@given(count=st.integers(1, 5000), seed=st.binary(min_size=32, max_size=32), at=st.integers(0, 1000))
def test_a_rotation_keeps_the_norm_and_is_taken_back(count: int, seed: bytes, at: int) -> None:
    values = np.random.default_rng(count).standard_t(2, count)
    made = Rotation(seed)
    rotated = made.rotate(values, 64 * at)
    norm = np.linalg.norm(values)
    assert np.linalg.norm(rotated) == pytest.approx(norm, rel=1e-12)
    assert np.abs(made.restore(rotated, 64 * at) - values).max() <= 1e-13 * norm * 16
    # What is summed rotated is the sum.
    both = made.restore(rotated + made.rotate(2 * values, 64 * at), 64 * at)
    assert np.abs(both - 3 * values).max() <= 1e-13 * norm * 48


@pytest.mark.parametrize("count", [4096, 5000, 32768, 32769])
def test_one_large_number_is_shared_out_over_all_of_its_piece(count: int) -> None:
    for place in (0, count // 2, count - 1):
        spike = np.zeros(count)
        spike[place] = 1.0
        rotated = Rotation(SEED).rotate(spike, 64)
        # Where two powers of two overlap, a number is shared out twice.
        assert np.abs(rotated).max() <= 12 / np.sqrt(count)


def test_signs_are_of_the_seed_and_of_the_place_and_the_same_on_every_machine() -> None:
    values = np.arange(1.0, 3001.0)
    made = {Rotation(SEED).rotate(values, at).tobytes() for at in (0, 64, 750)}
    made.add(Rotation(bytes(32)).rotate(values, 0).tobytes())
    assert len(made) == 4
    digest = hashlib.sha256(Rotation(SEED).rotate(values, 64).astype("<f8").tobytes()).hexdigest()
    assert digest == "a47a6fc45c80d596818820d2833967caf242503598b744252230e5915164cc5d"


@settings(max_examples=100, deadline=None)
@given(start=st.integers(0, 10**7), size=st.integers(0, 10**6), leaf=st.integers(1, 60))
def test_pieces_cover_all_and_none_crosses_a_leaf(start: int, size: int, leaf: int) -> None:
    found = list(pieces(start, start + size))
    assert [last for _, last in found[:-1]] == [first for first, _ in found[1:]]
    assert sum(last - first for first, last in found) == size
    border = leaf * 8 * WINDOW_BYTES
    for cut in (start, min(max(border, start), start + size)):
        assert list(pieces(start, cut)) + list(pieces(cut, start + size)) == found
    assert all(last - first <= WINDOW_BYTES for first, last in found)


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(1, 900), min_size=1, max_size=6), block=st.integers(1, 700), data=st.data())
def test_entries_are_rotated_together_however_they_are_read(sizes: list[int], block: int, data: st.DataObject) -> None:
    entries = [Entry(f"w{number}", "F32", (size,)) for number, size in enumerate(sizes)]
    wide = [Entry("wide", "F64", (data.draw(st.integers(0, 300)),))]
    layout = Layout.of([*entries, *wide, Entry("n", "I64", (2,), Rule.KEEP_NEWEST)])
    rng = np.random.default_rng(1)
    arrays = {entry.name: rng.normal(size=entry.shape).astype(entry.numpy) for entry in layout}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rotation, "WINDOW_BYTES", 1024)
        source = RotatedParameters(layout, arrays, Rotation(SEED))
        flat = np.concatenate([arrays[entry.name] for entry in layout if entry.dtype == "F32"])
        start = layout.offsets["w0"]
        whole = [
            Rotation(SEED).rotate(flat[(first - start) // 4 : (last - start) // 4], first)
            for first, last in pieces(start, start + flat.nbytes)
        ]
        read = [
            source.values(entry, first, min(first + block, entry.count))
            for entry in layout
            if entry.dtype == "F32"
            for first in range(0, entry.count, block)
        ]
    assert np.array_equal(np.concatenate(read), np.concatenate(whole))


@pytest.mark.parametrize("bits", [8, 16])
def test_of_heavy_tailed_updates_few_bits_lose_less_when_they_are_rotated(bits: int) -> None:
    """Each with the bound that suits it best: what suits neither way is not compared."""

    def error(values: np.ndarray) -> float:
        best = np.inf
        for part in range(12):
            bound = float(np.abs(values).max()) * 2.0**-part
            ring = Ring(bits=bits, fraction=_fraction(bits, bound), bound=bound)
            total = sum(encode(row, ring)[0] for row in values)
            best = min(best, float(np.mean((decode(total, ring) - values.sum(axis=0)) ** 2)))
        return best

    rng = np.random.default_rng(5)
    heavy = 1e-3 * rng.standard_t(2, (10, 1 << 14))
    rotated = np.stack([Rotation(SEED).rotate(row, 0) for row in heavy])
    assert error(rotated) < 0.2 * error(heavy)


def _fraction(bits: int, bound: float) -> int:
    return int(np.floor(np.log2((2.0 ** (bits - 1) - 1) / 10 / bound)))
