"""Parameters that a seed chooses: the same everywhere, as many as were asked for, found again by whoever sums them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse_fabric.errors import HanseError
from hanse_fabric.messages.masking import Chosen
from hanse_fabric.tensors.file import read_tensors
from hanse_fabric.tensors.layout import Entry, Layout, Rule
from hanse_privacy.ring import rotation
from hanse_privacy.ring.choice import Choice, sent_layout
from hanse_privacy.ring.codec import decode
from hanse_privacy.ring.files import BLOCK, mask_shape, ring_layout
from hanse_privacy.ring.rotation import pieces
from unit.privacy.test_masked_files import MODEL, elements, masked, plan_of, update

SEED = "5a" * 32


@settings(max_examples=60, deadline=None)
@given(fraction=st.floats(0.001, 0.999), size=st.integers(1, 5000), at=st.integers(0, 1000))
def test_the_places_rise_and_are_as_many_as_were_asked_for_one_at_least(fraction: float, size: int, at: int) -> None:
    choice = Choice(Chosen(fraction=fraction, seed=SEED))
    places = choice.places(size, 64 * at)
    assert len(places) == choice.count(size) == min(size, max(1, round(fraction * size)))
    assert np.all(np.diff(places) > 0)
    assert places[0] >= 0
    assert places[-1] < size
    spread = choice.spread(np.arange(1.0, len(places) + 1), size, 64 * at)
    assert np.array_equal(np.flatnonzero(spread), places)


def test_places_are_of_the_seed_and_of_the_place_and_the_same_on_every_machine() -> None:
    choice = Choice(Chosen(fraction=0.1, seed=SEED))
    other = Choice(Chosen(fraction=0.1, seed="00" * 32))
    made = {each.places(3000, at).tobytes() for each in (choice, other) for at in (0, 64)}
    assert len(made) == 4
    told = hashlib.sha256(choice.places(3000, 64).astype("<u4").tobytes()).hexdigest()
    assert told == "bb432746e4e73b6a1da1267e56511563ae38c69025b24a2e0eba6c41a4eb8e36"


def test_every_place_is_chosen_as_often_as_any_other() -> None:
    times = np.zeros(200)
    for number in range(2000):
        times[Choice(Chosen(fraction=0.1, seed=hashlib.sha256(b"%d" % number).hexdigest())).places(200, 64)] += 1
    # 200 each, with a standard deviation of 13.4.
    assert abs(times - 200).max() < 6 * 13.5


@settings(max_examples=100, deadline=None)
@given(
    start=st.integers(0, 10**5), counts=st.integers(1, 10**5), fraction=st.floats(0.001, 0.999),
    itemsize=st.sampled_from([2, 4, 8]),
)  # fmt: skip
def test_how_many_were_sent_before_a_piece_is_known_without_looking_at_them(
    start: int, counts: int, fraction: float, itemsize: int
) -> None:
    choice, start = Choice(Chosen(fraction=fraction, seed=SEED)), start * 64
    sent = 0
    for first, last in pieces(start, start + counts * itemsize):
        assert choice.before(start, first, itemsize) == sent
        sent += choice.count((last - first) // itemsize)
    assert choice.before(start, start + counts * itemsize, itemsize) == sent


def test_a_masked_update_has_the_chosen_parameters_alone_and_all_of_its_buffers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotation, "WINDOW_BYTES", 64)
    chosen = Chosen(fraction=0.4, seed=SEED)
    plan = plan_of().model_copy(update={"chosen": chosen, "largest_weight": 1})
    arrays, choice = update(1), Choice(chosen)
    written = masked(tmp_path / "masked", arrays, plan, weight=1)
    assert written.layout == ring_layout(MODEL, plan)
    found, sent = elements(tmp_path / "masked"), sent_layout(MODEL, choice)
    assert mask_shape(written.layout).nbytes == sum(array.nbytes for array in found.values())
    for segment in MODEL.segments:
        if segment.rule is not Rule.PARAMETER:
            continue
        together = [entry for entry in MODEL if entry.dtype == segment.dtype and entry.rule is Rule.PARAMETER]
        flat = np.concatenate([arrays[entry.name].reshape(-1) for entry in together]).astype(np.float64)
        size, expected = together[0].numpy.itemsize, []
        for first, last in pieces(segment.start, segment.stop):
            piece = flat[(first - segment.start) // size : (last - segment.start) // size]
            expected.append(piece[choice.places(piece.size, first)])
        name = next(entry.name for entry in sent if entry.dtype == segment.dtype and entry.rule is Rule.PARAMETER)
        assert np.allclose(decode(found[name], plan.default), np.concatenate(expected), atol=1e-6)
    plain = read_tensors(tmp_path / "masked.plain")[0]
    assert {entry.name for entry in plain if entry.rule is not Rule.PARAMETER} <= found.keys()


def test_more_chosen_parameters_than_a_block_has_are_sent_in_blocks(tmp_path: Path) -> None:
    layout = Layout.of([Entry("half", "F16", (1 << 18,))])
    arrays = {"half": np.linspace(-1, 1, 1 << 18).astype(np.float16)}
    plan = plan_of(rounding="stochastic").model_copy(update={"chosen": Chosen(fraction=0.9, seed=SEED)})
    firsts = []

    def noise(block: np.ndarray, first: int) -> np.ndarray:
        firsts.append((first, block.size))
        return np.zeros(block.size, np.int64)

    written = masked(tmp_path / "masked", arrays, plan, layout, adjust=noise)
    assert sum(size for _, size in firsts) == written.layout.entries[0].count
    assert [first for first, _ in firsts] == np.cumsum([0, *(size for _, size in firsts)])[:-1].tolist()
    assert max(size for _, size in firsts) <= BLOCK


def test_parameters_of_rings_of_their_own_are_not_chosen_together(tmp_path: Path) -> None:
    plan = plan_of().model_copy(update={"chosen": Chosen(fraction=0.4, seed=SEED)})
    finer = plan.default.model_copy(update={"fraction": plan.default.fraction - 1})
    with pytest.raises(HanseError, match=r"ring\.entries\[conv\.weight\]: 'a ring of its own'"):
        masked(
            tmp_path / "masked", update(1), plan.model_copy(update={"entries": {**plan.entries, "conv.weight": finer}})
        )
