"""Tensor files: round trips, the one layout, and what is refused."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, load_file, save

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.tensors.file import (
    decode_tensors,
    encode_tensors,
    is_own,
    layout_like,
    layout_of,
    own_header,
    read_tensors,
    write_tensors,
)
from hanse_fabric.tensors.layout import DTYPES, Entry, Layout, Rule, Segment, dtype_name, header_length, parse_header

W = Entry("w", "F32", (2,))
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12).filter(
    lambda name: name != "__metadata__"
)
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)
FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def entries(draw: st.DrawFn) -> list[Entry]:
    made = []
    for name in draw(st.sets(NAMES, max_size=6)):
        dtype = draw(st.sampled_from(sorted(DTYPES.keys() - {"U40", "U48"})))  # elements of rings alone
        floating = DTYPES[dtype].kind == "f"
        rule = draw(st.sampled_from([Rule.PARAMETER, Rule.AVERAGE])) if floating else Rule.KEEP_NEWEST
        made.append(Entry(name, dtype, draw(SHAPES), rule))
    return made


def filled(layout: Layout, seed: int = 0) -> dict[str, np.ndarray]:
    """Arrays of random bytes; booleans of 0 and 1."""
    source = np.random.default_rng(seed)
    arrays = {}
    for entry in layout:
        raw = source.integers(0, 2 if entry.dtype == "BOOL" else 256, entry.nbytes, dtype=np.uint8)
        arrays[entry.name] = raw.view(entry.numpy).reshape(entry.shape)
    return arrays


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(
        a[name].dtype == b[name].dtype and a[name].shape == b[name].shape and a[name].tobytes() == b[name].tobytes()
        for name in a
    )


@FEW
@given(entries())
def test_arrays_come_back_as_they_were(made: list[Entry]) -> None:
    layout = Layout.of(made)
    arrays = filled(layout)
    data = encode_tensors(layout, arrays)
    assert len(data) == layout.size
    found, back = decode_tensors(data)
    assert found == layout
    assert same(back, arrays)


@FEW
@given(entries(), st.randoms(use_true_random=False))
def test_the_header_does_not_depend_on_the_order_of_insertion(made: list[Entry], order: random.Random) -> None:
    shuffled = list(made)
    order.shuffle(shuffled)
    assert Layout.of(shuffled).header == Layout.of(made).header


@FEW
@given(entries())
def test_the_data_are_the_arrays_one_after_another_in_file_order(made: list[Entry]) -> None:
    layout = Layout.of(made)
    arrays = filled(layout)
    data = encode_tensors(layout, arrays)
    assert layout.data_start % 64 == 0
    assert data[layout.data_start :] == b"".join(arrays[entry.name].tobytes() for entry in layout)
    for entry in layout:
        start = layout.offsets[entry.name]
        assert start % entry.numpy.itemsize == 0
        assert data[start : start + entry.nbytes] == arrays[entry.name].tobytes()


@FEW
@given(entries())
def test_the_segments_cover_the_data_without_holes(made: list[Entry]) -> None:
    layout = Layout.of(made)
    at = layout.data_start
    for segment in layout.segments:
        assert segment.start == at
        at = segment.stop
    assert at == layout.size
    assert all(segment.start < segment.stop for segment in layout.segments)
    assert all((a.dtype, a.rule) != (b.dtype, b.rule) for a, b in itertools.pairwise(layout.segments))
    for entry in filter(lambda entry: entry.nbytes, layout):
        (around,) = (each for each in layout.segments if each.start <= layout.offsets[entry.name] < each.stop)
        assert (around.dtype, around.rule) == (entry.dtype, entry.rule)


def test_an_entry_without_elements_is_no_segment() -> None:
    empty = [Entry("a", "F64", (0,)), Entry("b", "F32", (2, 0))]
    assert Layout.of(empty).segments == ()
    layout = Layout.of([*empty, W])
    assert layout.segments == (Segment("F32", Rule.PARAMETER, layout.data_start, layout.size),)


@FEW
@given(entries())
def test_the_safetensors_library_reads_our_files(made: list[Entry]) -> None:
    layout = Layout.of(made)
    arrays = filled(layout)
    assert same(load(encode_tensors(layout, arrays)), arrays)


def test_files_of_the_safetensors_library_are_read() -> None:
    arrays = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.ones(3, np.float64), "c": np.float32([7])}
    layout, back = decode_tensors(save(arrays))
    assert [entry.name for entry in layout] == ["a", "b", "c"]
    assert same(back, arrays)


def test_a_file_is_mapped_and_read_only(tmp_path: Path) -> None:
    layout = Layout.of([Entry("w", "F32", (2, 3)), Entry("n", "I64", (), Rule.KEEP_NEWEST)])
    arrays = filled(layout)
    path = tmp_path / "model.safetensors"
    write_tensors(path, layout, arrays)
    found, back = read_tensors(path)
    assert found == layout == layout_of(path) == layout_of(path.read_bytes())
    assert same(back, arrays)
    assert same(load_file(path), arrays)
    assert not back["w"].flags.writeable
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


def test_decoding_copies_nothing() -> None:
    layout = Layout.of([Entry("w", "F32", (4,))])
    data = bytearray(encode_tensors(layout, filled(layout)))
    _, back = decode_tensors(memoryview(data))
    data[layout.data_start : layout.data_start + 4] = np.float32(3).tobytes()
    assert back["w"][0] == 3


@pytest.mark.parametrize(
    ("arrays", "named"),
    [
        ({}, "w"),
        ({"w": np.zeros(3, np.float32), "x": np.zeros(1)}, "x"),
        ({"w": np.zeros(4, np.float32)}, "w"),
        ({"w": np.zeros(3, np.float64)}, "float64"),
        ({"w": np.zeros((3, 1), np.float32)}, "w"),
    ],
)
def test_arrays_that_do_not_fit_the_layout_are_named(arrays: dict[str, np.ndarray], named: str, tmp_path: Path) -> None:
    layout = Layout.of([Entry("w", "F32", (3,))])
    with pytest.raises(HanseError, match=named) as caught:
        write_tensors(tmp_path / "model", layout, arrays)
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert list(tmp_path.iterdir()) == []


def _header(body: object) -> bytes:
    text = json.dumps(body).encode()
    return len(text).to_bytes(8, "little") + text


def _entry(start: int, stop: int, shape: tuple[int, ...] = (2,), dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, stop]}


def _typed(rules: dict[str, Any], **entries: Any) -> bytes:
    return _header({"__metadata__": {"hanse": json.dumps({"entries": rules})}} | entries)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"short",
        (2**40).to_bytes(8, "little") + b"{}",
        (100).to_bytes(8, "little") + b"{}",
        _header({})[:-1] + b"x",
        _header([]),
        _header({"a": 3}),
        _header({"a": {"dtype": "F32"}}),
        _header({"a": _entry(0, 8, dtype="F31")}) + bytes(8),
        _header({"a": _entry(0, 8, shape=(-2,))}) + bytes(8),
        _header({"a": _entry(0, 8, shape=(-1, -2))}) + bytes(8),
        _typed({"v": {"rule": "pool_variance", "mean": "m"}}, m=_entry(0, 4, shape=(1,)), v=_entry(4, 12)) + bytes(12),
        _typed({"v": {"rule": "pool_variance", "mean": "m"}}, m=_entry(0, 16, dtype="F64"), v=_entry(16, 24))
        + bytes(24),
        _typed({"v": {"rule": "pool_variance", "mean": "x"}}, m=_entry(0, 8), v=_entry(8, 16)) + bytes(16),
        _typed({"v": {"rule": "pool_variance", "mean": ["m"]}}, m=_entry(0, 8), v=_entry(8, 16)) + bytes(16),
        _typed({"v": {"rule": "pool_variance"}}, m=_entry(0, 8), v=_entry(8, 16)) + bytes(16),
        _header({"a": _entry(0, 8), "b": _entry(4, 12)}) + bytes(12),
        _header({"a": _entry(0, 8), "b": _entry(12, 20)}) + bytes(20),
        _header({"b": _entry(0, 8), "a": _entry(8, 16)}) + bytes(16),
        _header({"a": _entry(0, 4)}) + bytes(4),
        _header({"a": _entry(0, 8)}) + bytes(7),
        _header({"a": _entry(0, 8)}) + bytes(9),
        _header({"__metadata__": {"hanse": "]"}, "a": _entry(0, 8)}) + bytes(8),
        _header({"__metadata__": {"hanse": '{"entries": {"a": {"rule": "exec"}}}'}, "a": _entry(0, 8)}) + bytes(8),
        _header({"__metadata__": {"hanse": "[]"}, "a": _entry(0, 8)}) + bytes(8),
        _header({"__metadata__": 3, "a": _entry(0, 8)}) + bytes(8),
        _header({"a": _entry(0, 8) | {"shape": ["x"]}}) + bytes(8),
        _header({"a": _entry(0, 8) | {"data_offsets": [0]}}) + bytes(8),
        _header({"a": _entry(0, 8) | {"dtype": ["F32"]}}) + bytes(8),
        _header({"__metadata__": {"hanse": '{"entries": {"a": {"mean": []}}}'}, "a": _entry(0, 8)}) + bytes(8),
        (100_000).to_bytes(8, "little") + b"[" * 100_000,
        (48).to_bytes(8, "little") + b'{"a":{"dtype":"F32","shape":[1e999],"data_of":0}}',
        b"\x80\x04" + bytes(100),
    ],
)
def test_bytes_that_are_no_tensor_file_are_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(data)
    reads: list[Callable[[], object]] = [
        lambda: decode_tensors(data),
        lambda: read_tensors(tmp_path / "file"),
        lambda: layout_of(data),
    ]
    for read in reads:
        with pytest.raises(HanseError) as caught:
            read()
        assert caught.value.code is ErrorCode.INVALID_INPUT


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_damaged_header_never_gives_anything_but_a_layout_or_a_refusal(data: st.DataObject) -> None:
    header = bytearray(Layout.of([Entry("w", "F32", (2, 3)), Entry("n", "I64", (), Rule.KEEP_NEWEST)]).header)
    for _ in range(data.draw(st.integers(1, 3))):
        header[data.draw(st.integers(8, len(header) - 1))] = data.draw(st.integers(0, 255))
    try:
        parse_header(bytes(header))
    except HanseError as error:
        assert error.code is ErrorCode.INVALID_INPUT  # noqa: PT017


def test_a_file_that_was_cut_is_refused_after_a_whole_one_with_the_same_header_was_read() -> None:
    arrays = {"weight": np.ones(3, dtype=np.float32)}
    whole = encode_tensors(Layout.of([Entry("weight", "F32", (3,))]), arrays)
    assert decode_tensors(whole)[1]["weight"].tolist() == [1, 1, 1]
    with pytest.raises(HanseError, match=f"{len(whole) - 4} bytes, its header describes {len(whole)}"):
        decode_tensors(whole[:-4])


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(HanseError) as caught:
        read_tensors(tmp_path / "absent")
    assert caught.value.code is ErrorCode.NOT_FOUND


def test_an_array_of_another_memory_order_is_written_in_c_order() -> None:
    layout = Layout.of([Entry("w", "F32", (2, 3))])
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert encode_tensors(layout, {"w": np.asfortranarray(array)}) == encode_tensors(layout, {"w": array})


def test_a_hostile_header_of_a_variance_is_refused_and_the_honest_one_is_read() -> None:
    rules = {"m": {"rule": "average"}, "v": {"rule": "pool_variance", "mean": "m"}}
    assert [entry.name for entry in parse_header(_typed(rules, m=_entry(0, 8), v=_entry(8, 16)))] == ["m", "v"]
    with pytest.raises(HanseError, match="an entry of the same shape and dtype"):
        parse_header(_typed(rules, m=_entry(0, 8, shape=(2, 1)), v=_entry(8, 16)))


def test_the_header_has_these_bytes() -> None:
    layout = Layout.of([
        Entry("norm.var", "F32", (3,), Rule.POOL_VARIANCE, "norm.mean"),
        Entry("w", "F32", (2, 3)), Entry("norm.mean", "F32", (3,), Rule.AVERAGE),
        Entry("seen", "I64", (), Rule.KEEP_NEWEST),
    ])  # fmt: skip
    text = (
        b'{"__metadata__":{"hanse":"{\\"entries\\":{\\"norm.mean\\":{\\"rule\\":\\"average\\"},'
        b'\\"norm.var\\":{\\"mean\\":\\"norm.mean\\",\\"rule\\":\\"pool_variance\\"},'
        b'\\"seen\\":{\\"rule\\":\\"keep_newest\\"},\\"w\\":{\\"rule\\":\\"parameter\\"}},\\"layout\\":1}"},'
        b'"seen":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]},'
        b'"norm.mean":{"dtype":"F32","shape":[3],"data_offsets":[32,44]},'
        b'"norm.var":{"dtype":"F32","shape":[3],"data_offsets":[44,56]}}'
    )
    assert layout.header[8:].rstrip(b" ") == text
    assert int.from_bytes(layout.header[:8], "little") == len(layout.header) - 8
    assert len(layout.header) == -(-(8 + len(text)) // 64) * 64
    assert parse_header(layout.header) == layout


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ([W], ""),
        ([Entry("w", "F32", (3,))], "entry w has shape [3], [2] was expected"),
        ([Entry("w", "F64", (2,))], "entry w has dtype F64, F32 was expected"),
        ([Entry("w", "F32", (2,), Rule.AVERAGE)], "entry w has rule average, parameter was expected"),
        ([], "entry w is missing"),
        ([W, *(Entry(name, "F32", ()) for name in "zyxvutsrqponmlkjihgfedcba")], "entry a is not in the model"),
    ],
)
def test_the_first_difference_of_two_layouts_is_said_in_words(other: list[Entry], words: str) -> None:
    assert Layout.of([W]).difference(Layout.of(other)) == words


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (Entry("n", "I64", (1,)), "a rule for integers"),
        (Entry("n", "I64", (1,), Rule.AVERAGE), "a rule for integers"),
        (Entry("n", "I64", (1,), Rule.RING), "U8 to U64"),
        (Entry("n", "F32", (1,), Rule.RING), "U8 to U64"),
        (Entry("n", "F8", (1,)), "one of F64, F32"),
        (Entry("n", "F32", (2, -1)), r"entry n\.shape: .*a shape without negative lengths"),
    ],
)
def test_a_rule_that_does_not_fit_the_dtype_is_refused(entry: Entry, words: str) -> None:
    with pytest.raises(HanseError, match=words):
        Layout.of([entry])


def test_two_entries_of_one_name_are_refused() -> None:
    with pytest.raises(HanseError, match="distinct names"):
        Layout.of([W, Entry("w", "F64", ())])


def test_names_stand_in_the_header_in_their_own_letters() -> None:
    assert '"größe":{"dtype"'.encode() in Layout.of([Entry("größe", "F32", (2,))]).header


def test_a_header_that_came_before_is_not_read_again() -> None:
    """The updates of a round have one among them."""
    header = Layout.of([Entry("read once", "F32", (3,))]).header
    assert parse_header(header, size=len(header) + 12) is parse_header(header)


def test_a_variance_has_its_mean_by_name_whatever_the_name_is() -> None:
    mean, variance = Entry("", "F32", (2,), Rule.AVERAGE), Entry("v", "F32", (2,), Rule.POOL_VARIANCE, "")
    layout = Layout.of([mean, variance])
    assert parse_header(layout.header) == layout
    with pytest.raises(HanseError, match=r"entry v\.mean: None is not an entry of the same shape and dtype"):
        Layout.of([mean, Entry("v", "F32", (2,), Rule.POOL_VARIANCE)])


@pytest.mark.parametrize("length", [0, 7])
def test_fewer_bytes_than_say_how_long_a_header_is_are_told_as_that(length: int) -> None:
    with pytest.raises(HanseError, match="shorter than 8 bytes, not safetensors") as refusal:
        header_length(bytes(length))
    assert refusal.value.code is ErrorCode.INVALID_INPUT


def test_a_header_has_16_mib_at_most() -> None:
    for length in (2, 16 << 20):
        assert header_length(length.to_bytes(8, "little")) == 8 + length
    for length in (0, 1, (16 << 20) + 1):
        with pytest.raises(HanseError, match=f"header of {length} bytes"):
            header_length(length.to_bytes(8, "little"))


@pytest.mark.parametrize("dtype", ["F32", "I64", "BOOL"])
def test_elements_of_a_ring_are_words_of_8_to_64_bits_the_widest_first_and_nothing_else(dtype: str) -> None:
    words = Layout.of(Entry(f"of-{bits}", f"U{bits}", (3,), Rule.RING) for bits in (16, 32, 40, 8, 64, 48))
    assert [entry.name for entry in words] == ["of-64", "of-48", "of-40", "of-32", "of-16", "of-8"]
    with pytest.raises(HanseError, match=f"entry v: .* of {dtype}' is not a ring element: U8 to U64"):
        Layout.of([Entry("v", dtype, (3,), Rule.RING)])


def test_elements_of_a_ring_stand_as_given_and_all_others_by_their_names() -> None:
    for names in ("bca", "cab"):
        words = Layout.of(Entry(name, "U32", (3,), Rule.RING) for name in names)
        assert [entry.name for entry in parse_header(words.header)] == list(names)
        plain = Layout.of(Entry(name, "F32", (3,)) for name in names)
        assert [entry.name for entry in plain] == ["a", "b", "c"]


@pytest.mark.parametrize("wide", ["U40", "U48"])
@pytest.mark.parametrize("rule", [Rule.KEEP_NEWEST, Rule.PARAMETER])
def test_numbers_of_five_and_six_bytes_are_elements_of_a_ring_alone(rule: Rule, wide: str) -> None:
    with pytest.raises(HanseError, match="entry v"):
        Layout.of([Entry("v", wide, (3,), rule)])


def test_arrays_of_other_dtypes_are_refused_by_their_name() -> None:
    with pytest.raises(HanseError, match="dtype: 'complex128' is not one of "):
        layout_like({"w": np.zeros(2, np.complex128)})


def test_the_headers_length_is_read_of_the_first_eight_bytes_however_many_are_given() -> None:
    data = encode_tensors(Layout.of([Entry("w", "F32", (3,))]), {"w": np.zeros(3, np.float32)})
    assert header_length(data[:8]) == header_length(data) == len(data) - 12


@pytest.mark.parametrize("name", DTYPES)
def test_a_dtype_has_its_name_in_either_byte_order(name: str) -> None:
    assert {dtype_name(np.dtype(DTYPES[name])), dtype_name(np.dtype(DTYPES[name]).newbyteorder(">"))} == {name}


def otherwise(data: bytes, how: str) -> bytes:
    """A tensor file of the same model with another header."""
    length = header_length(data[:8])
    body, rest = json.loads(data[8:length]), data[length:]
    separators, padding = (",", ":"), b""
    match how:
        case "spaces":
            separators = (", ", ": ")
        case "order":
            body = dict(reversed(body.items()))
        case "metadata":
            body["__metadata__"]["by"] = "somebody"
        case "no metadata":
            del body["__metadata__"]
        case "padding":
            padding = b" " * 64
        case "escapes":
            text = data[8:length].replace(b"weight", b"\\u0077eight", 1)
            return len(text).to_bytes(8, "little") + text + rest
        case _:
            raise AssertionError(how)
    text = json.dumps(body, separators=separators).encode() + padding
    return len(text).to_bytes(8, "little") + text + rest


@pytest.mark.parametrize("how", ["spaces", "order", "metadata", "no metadata", "padding", "escapes"])
def test_a_header_that_somebody_else_wrote_is_not_this_modules_which_is_told(how: str, tmp_path: Path) -> None:
    arrays = {"weight": np.arange(12, dtype=np.float32), "bias": np.zeros(3, np.float32)}
    own = encode_tensors(layout_like(arrays), arrays)
    other = otherwise(own, how)
    assert other != own
    assert same(decode_tensors(other)[1], arrays)
    found = own_header(len(other), lambda at, length: other[at : at + length])
    assert found is not None
    header, start = found
    assert header + other[start:] == own
    (tmp_path / "other").write_bytes(other)
    (tmp_path / "own").write_bytes(own)
    assert (is_own(tmp_path / "own"), is_own(tmp_path / "other")) == (True, False)
    assert own_header(len(own), lambda at, length: own[at : at + length]) is None


@pytest.mark.parametrize("data", [b"", b"abc", b"\xff" * 8, (100).to_bytes(8, "little") + b"{}"])
def test_what_is_no_tensor_file_has_no_header_of_this_module(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(HanseError) as refusal:
        is_own(tmp_path / "file")
    assert refusal.value.code is ErrorCode.INVALID_INPUT


def test_an_entry_that_is_no_variance_has_no_mean() -> None:
    """Else one model could have as many headers as there are words."""
    with pytest.raises(HanseError, match=r"entry weight\.mean: 'anything' is not none"):
        Layout.of([Entry("weight", "F32", (2,), Rule.PARAMETER, "anything")])
