"""Files that somebody made to stop whoever reads them: headers of tensor files, and YAML that people write."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.tensors.layout import parse_header
from hanse_fabric.text_files import parse_yaml
from hanse_workflows.uploaded_model import read_entries


def written(text: str) -> bytes:
    return len(text).to_bytes(8, "little") + text.encode()


def of_shape(shape: str, end: int = 4) -> bytes:
    return written(f'{{"w": {{"dtype": "F32", "shape": {shape}, "data_offsets": [0, {end}]}}}}')


def read_by_both(header: bytes, data: int = 4) -> list[HanseError]:
    """What the reader of tensor files and the reader of uploaded models say to a header."""
    said = []
    readers: list[Any] = [
        lambda: parse_header(header),
        lambda: read_entries(len(header) + data, lambda at, length: header[at : at + length]),
    ]
    for read in readers:
        with pytest.raises(HanseError) as refused:
            read()
        said.append(refused.value)
    return said


def test_the_header_itself_is_read_by_both() -> None:
    header = of_shape("[1]")
    assert parse_header(header).entries[0].shape == (1,)
    assert read_entries(len(header) + 4, lambda at, length: header[at : at + length]) == {"w": ("F32", (1,))}


@pytest.mark.parametrize(
    "shape",
    [
        "[-1, -1]", "[1.0]", '["1"]', "[true]", "[null]", "[[1]]", '"1"', "{}", "1", "[9223372036854775807]",
        "[4294967296, 4294967296]", str([1] * 65), str([2**62] * 60), "[" + ", ".join(["1" * 4000] * 500) + "]",
    ],
    ids=lambda shape: shape[:24],
)  # fmt: skip
def test_a_shape_that_no_array_has_is_refused_at_once(shape: str) -> None:
    for refusal in read_by_both(of_shape(shape)):
        assert refusal.code is ErrorCode.INVALID_INPUT


def test_a_header_of_two_mib_of_digits_is_refused_at_once() -> None:
    for refusal in read_by_both(of_shape("[" + ",".join(["9" * 18] * 110_000) + "]")):
        assert refusal.code is ErrorCode.INVALID_INPUT


@pytest.mark.parametrize("text", ['{"w":' * 100_000, '{"w": "\\ud800"}', '{"\\ud800": {}}', '{"w": NaN}', "[" * 70])
def test_json_that_stops_its_reader_is_no_header(text: str) -> None:
    read_by_both(written(text))


def test_typing_of_entries_that_is_nested_deeply_is_no_typing() -> None:
    inner = json.dumps('{"entries":' * 50_000)
    with pytest.raises(HanseError, match="nested"):
        parse_header(written(f'{{"__metadata__": {{"hanse": {inner}}}}}'))


def test_a_small_text_in_yaml_does_not_become_a_large_value() -> None:
    laughs = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    laughs += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(HanseError, match="alias") as refused:
        parse_yaml("\n".join(laughs), "job file")
    assert refused.value.code is ErrorCode.INVALID_INPUT


def test_a_merge_of_merges_is_refused_before_it_is_worked_out() -> None:
    lines = ["a0: &a0 {x: 1, y: 2}"]
    lines += [f"a{n}: &a{n} {{<<: [{','.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 12)]
    with pytest.raises(HanseError, match="alias"):
        parse_yaml("\n".join(lines), "policy file")


@pytest.mark.parametrize("text", ["[" * 300, "{a: " * 300, "- " * 3_000 + "x", "[" * 100_000], ids=len)
def test_yaml_nested_deeply_is_refused(text: str) -> None:
    with pytest.raises(HanseError, match="not YAML"):
        parse_yaml(text, "job file")


@pytest.mark.parametrize("end", ["", ".5"], ids=["integer", "float"])
def test_digits_to_base_60_are_refused_before_they_are_a_number(end: str) -> None:
    with pytest.raises(HanseError, match=r"a number of \d+ characters"):
        parse_yaml("a: " + ":".join(["59"] * 1000) + end, "policy file")


def test_aliases_as_people_write_them_are_read() -> None:
    assert parse_yaml("base: &b {lr: 0.1}\nmodel: {<<: *b, x: 1}\nother: *b", "job file") == {
        "base": {"lr": 0.1}, "model": {"lr": 0.1, "x": 1}, "other": {"lr": 0.1},
    }  # fmt: skip


@pytest.mark.parametrize(
    "text", ["a: .nan", "a: -.inf", "a: 1" + "0" * 5000, 'a: "\\ud800"'], ids=lambda text: text[:9]
)
def test_values_that_json_has_not_are_refused_in_yaml_too(text: str) -> None:
    with pytest.raises(HanseError):
        parse_yaml(text, "job file")
