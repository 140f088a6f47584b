"""One suite for every registered codec: what it makes of an update, and of bytes that it never made."""

from __future__ import annotations

from contextlib import suppress
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse_fabric.errors import HanseError
from hanse_fabric.plugins import CODECS, built_in
from hanse_fabric.tensors.layout import Entry, Layout, Rule
from hanse_learning.codecs.chain import build_chain
from hanse_learning.codecs.frames import FRAME_ELEMENTS, ROW, frames_of, head_length
from hanse_learning.codecs.reading import decode_frame
from hanse_learning.codecs.writing import encode
from unit.codecs.unit_codecs import decoded_of

BEFORE = {"sparsify": {"name": "percentile", "p": 50}}


def chains():
    for plugin in built_in(CODECS):
        config = plugin.load()
        if config.role == "difference":  # it is of whole files: test_deltas.py
            continue
        for example in config.examples:
            yield [*([BEFORE[config.after]] if config.after else []), {"name": plugin.name, **example}]


CHAINS = [
    *chains(),
    [{"name": "top_k", "fraction": 0.05}, {"name": "ternary"}, {"name": "zstd"}],
    [{"name": "low_rank", "rank": 3}, {"name": "float16"}, {"name": "zstd"}],
    [{"name": "low_rank", "rank": 2}, {"name": "integers", "bits": 8}],
    [{"name": "random_k", "fraction": 0.2}, {"name": "integers", "bits": 4}, {"name": "zstd", "level": 3}],
]
every = pytest.mark.parametrize(
    "chain", CHAINS, ids=lambda chain: "-".join(str(value) for section in chain for value in section.values())
)

LAYOUT = Layout.of([
    Entry("wide.weight", "F64", (30, 4)), Entry("a.weight", "F32", (70, 1001)), Entry("b.bias", "F32", (3,)),
    Entry("empty", "F32", (0, 4)), Entry("c.weight", "F16", (50,)), Entry("mean", "F32", (9,), Rule.AVERAGE),
    Entry("seen", "I64", (), Rule.KEEP_NEWEST),
])  # fmt: skip
PARAMETERS = [entry.name for entry in LAYOUT if entry.rule is Rule.PARAMETER and entry.count]


def update(seed=0, scale=1.0):
    draw = np.random.default_rng(seed)
    return {e.name: np.asarray(draw.standard_normal(e.shape) * (scale if e.rule is Rule.PARAMETER else 1), e.numpy)
            for e in LAYOUT}  # fmt: skip


def encoded(chain, arrays, *, seed=7, residual=None, layout=LAYOUT):
    file = BytesIO()
    left = encode(file, layout, arrays, build_chain(chain), seed=seed, residual=residual)
    return file.getvalue(), left


def decoded(chain, data):
    return decoded_of(LAYOUT, data, chain)


@every
def test_an_update_comes_back_in_its_layout_with_buffers_to_the_bit_and_parameters_no_larger(chain):
    arrays = update()
    back = decoded(chain, encoded(chain, arrays)[0])
    for entry in LAYOUT:
        assert (back[entry.name].shape, back[entry.name].dtype) == (entry.shape, entry.numpy)
        if entry.rule is not Rule.PARAMETER:
            assert back[entry.name].tobytes() == arrays[entry.name].tobytes()
        elif entry.count:
            assert np.isfinite(back[entry.name]).all()
            # Of a product single values may be larger, and all together are not.
            size = np.linalg.norm if any(section["name"] == "low_rank" for section in chain) else np.max
            assert size(np.abs(back[entry.name])) <= size(np.abs(arrays[entry.name])) * 1.005
    built = build_chain(chain)
    least = 0.5 if built.sparsifier is None and built.factorizer is None else 0.0
    sent, whole = back["a.weight"].astype(float), arrays["a.weight"].astype(float)
    assert (sent * whole).sum() > least * (whole * whole).sum()  # it is the update, and not nothing


@every
def test_the_same_seed_gives_the_same_bytes_and_no_update_is_larger_than_plain(chain):
    first, again = encoded(chain, update())[0], encoded(chain, update())[0]
    assert first == again
    assert len(first) < LAYOUT.size * 1.02 + 600


@every
def test_what_is_left_out_and_what_arrives_are_the_update(chain):
    arrays, before = update(), {name: array for name, array in update(1, 0.1).items() if name in PARAMETERS}
    data, left = encoded(chain, arrays, residual=before)
    back = decoded(chain, data)
    assert sorted(left) == sorted(PARAMETERS)
    for name in PARAMETERS:
        whole = arrays[name] + before[name]
        np.testing.assert_allclose(back[name] + left[name], whole, 2e-3 if whole.dtype == np.float16 else 1e-6, 1e-6)


@every
@pytest.mark.parametrize("scale", [0.0, 1e-38, 1e-30, 1e30, 3e38], ids=str)
def test_constant_tiny_and_huge_values_arrive_as_finite_numbers(chain, scale):
    with np.errstate(over="ignore"):
        arrays = {name: np.clip(array, -3, 3) for name, array in update(2).items()}
        for name in ("a.weight", "wide.weight"):
            arrays[name] = (arrays[name] / 3 * scale).astype(arrays[name].dtype)
    arrays["b.bias"][...] = 0.25
    back = decoded(chain, encoded(chain, arrays)[0])
    assert all(np.isfinite(back[name]).all() for name in PARAMETERS)
    if scale == 0.0:
        assert not back["a.weight"].any()


@every
def test_values_of_which_some_are_zero_arrive_where_they_are(chain):
    arrays = update(3)
    for name in PARAMETERS:
        arrays[name].reshape(-1)[::2] = 0
    data, left = encoded(chain, arrays, residual={name: np.zeros_like(arrays[name]) for name in PARAMETERS})
    back = decoded(chain, data)
    for name in PARAMETERS:
        np.testing.assert_allclose(back[name] + left[name], arrays[name], 5e-3 if name == "c.weight" else 1e-6, 1e-6)


@every
def test_an_update_that_is_not_finite_is_an_error_that_names_the_entry(chain):
    arrays = update()
    arrays["c.weight"][4] = np.nan
    with pytest.raises(HanseError, match=r"entry c\.weight has values that are not finite"):
        encoded(chain, arrays)


def test_more_values_than_an_entry_has_are_an_error_that_names_entry_and_number():
    with pytest.raises(HanseError, match=r"top_k\.k.*300.*at most 120.*wide\.weight"):
        encoded([{"name": "top_k", "k": 300}], update())


@every
@given(st.data())
@settings(max_examples=25, deadline=None)
def test_changed_bytes_are_an_error_or_an_update_of_the_layout_and_nothing_else(chain, data):
    """The digests are made anew: a site signs what it likes."""
    layout = Layout.of([Entry("w", "F32", (40, 5)), Entry("n", "I64", (2,), Rule.KEEP_NEWEST)])
    draw = np.random.default_rng(3)
    arrays = {"w": draw.standard_normal((40, 5)).astype("<f4"), "n": np.array([1, 2])}
    built = build_chain(chain)
    whole = encoded(chain, arrays, layout=layout)[0]
    frames = frames_of(layout)
    at = head_length(whole[:12])
    table = np.frombuffer(whole[at : at + ROW.itemsize * len(frames)], ROW)
    at += ROW.itemsize * len(frames)
    for frame, row in zip(frames, table, strict=True):
        packed = bytearray(whole[at : at + int(row["length"])])
        at += len(packed)
        match data.draw(st.sampled_from(["flip", "cut", "grow", "replace"])):
            case "flip":
                place = data.draw(st.integers(0, len(packed) - 1))
                packed[place] ^= data.draw(st.integers(1, 255))
            case "cut":
                del packed[data.draw(st.integers(0, len(packed) - 1)) :]
            case "grow":
                packed += data.draw(st.binary(min_size=1, max_size=20))
            case _:
                packed = bytearray(data.draw(st.binary(max_size=60)))
        made = None
        with suppress(HanseError):
            made = decode_frame(frame, bytes(packed), built, 7)
        assert made is None or made.nbytes == frame.stop - frame.start


def test_an_entry_larger_than_a_frame_is_cut_and_small_ones_share_one():
    small = [Entry(f"s{number}", "F32", (2,)) for number in range(9)]
    layout = Layout.of([Entry("big", "F32", (2 * FRAME_ELEMENTS + 5,)), *small])
    frames = frames_of(layout)
    assert [len(frame.portions) for frame in frames] == [1, 1, 10]
    assert frames[0].start == layout.data_start
    assert frames[-1].stop == layout.size
