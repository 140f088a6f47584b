"""A model as its difference to the one before: the same bits in fewer bytes, and nothing else by any other bytes."""

from __future__ import annotations

import dataclasses
import tracemalloc
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.tensors.digest import digest_bytes
from hanse_fabric.tensors.file import encode_tensors
from hanse_fabric.tensors.layout import Entry, Layout, Rule
from hanse_learning.codecs import deltas
from hanse_learning.codecs.chain import build_chain
from hanse_learning.codecs.config import check_job_codec, split_down
from hanse_learning.codecs.deltas import Difference, apply_delta, delta_of
from hanse_learning.codecs.writing import encode
from hanse_schemas.job import check_job

WAY = ({"name": "delta"}, {"name": "zstd", "level": 1})
LAYOUT = Layout.of([
    Entry("wide.weight", "F64", (30, 4)), Entry("a.weight", "F32", (300, 1001)), Entry("b.bias", "F32", (3,)),
    Entry("empty", "F32", (0, 4)), Entry("c.weight", "F16", (51,)), Entry("mean", "F32", (9,), Rule.AVERAGE),
    Entry("seen", "I64", (), Rule.KEEP_NEWEST),
])  # fmt: skip


def arrays(seed: int, moved: float = 0.0) -> dict[str, np.ndarray[Any, Any]]:
    """A model, and with `moved` the one after a round in which it moved so far."""
    draw, change = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    return {
        entry.name: np.asarray(
            draw.standard_normal(entry.shape) + moved * change.standard_normal(entry.shape), entry.numpy
        )
        for entry in LAYOUT
    }


def plain(seed: int, moved: float = 0.0) -> bytes:
    return bytes(encode_tensors(LAYOUT, arrays(seed, moved)))


def encoded(seed: int, moved: float, chain: list[dict[str, Any]]) -> bytes:
    file = BytesIO()
    encode(file, LAYOUT, arrays(seed, moved), build_chain(chain), seed=seed, with_layout=True)
    return file.getvalue()


FILES = {
    "plain": lambda moved: plain(1, moved),
    "float16": lambda moved: encoded(1, moved, [{"name": "float16"}]),
    "bfloat16": lambda moved: encoded(1, moved, [{"name": "bfloat16"}]),
    "integers": lambda moved: encoded(1, moved, [{"name": "integers", "rounding": "nearest"}]),
}
SMALLER = {"plain": 0.75, "float16": 0.75, "bfloat16": 0.62, "integers": 0.7}
"""Of the bytes, where a model moves by a thousandth of its size."""


def applied(folder: Path, base: bytes, delta: bytes) -> bytes:
    (folder / "base").write_bytes(base)
    (folder / "delta").write_bytes(delta)
    told = apply_delta(folder / "base", folder / "delta", folder / "made")
    made = (folder / "made").read_bytes()
    assert told == digest_bytes(made)
    return made


def way(new: bytes, old: bytes) -> bytes:
    return delta_of(new, old, WAY, base=digest_bytes(old)[0], makes=digest_bytes(new)[0])


@pytest.mark.parametrize("form", FILES)
def test_a_model_comes_out_of_the_one_before_to_the_bit_and_in_fewer_bytes(tmp_path: Path, form: str) -> None:
    old, new = FILES[form](0.0), FILES[form](1e-3)
    assert len(old) == len(new)
    delta = way(new, old)
    assert applied(tmp_path, old, delta) == new
    assert len(delta) < SMALLER[form] * len(new)
    assert way(new, old) == delta
    same = way(old, old)
    assert applied(tmp_path, old, same) == old
    assert len(same) < 0.01 * len(old)


@given(st.sampled_from([1, 2, 4, 8]), st.integers(0, 40), st.data())
@settings(max_examples=60, deadline=None)
def test_any_bits_come_back(width: int, count: int, data: st.DataObject) -> None:
    """Not-a-number, minus zero, and differences that wrap, too."""
    bits = st.binary(min_size=width * count, max_size=width * count)
    edges = st.sampled_from([b"\0", b"\xff", b"\x80", b"\x7f"]).map(lambda one: one * (width * count))
    new, old = data.draw(bits | edges), data.draw(bits | edges)
    difference = Difference()
    assert difference.read(difference.write(new, old, width), old, width).tobytes() == new


def changed(delta: bytes, **values: Any) -> bytes:
    """A delta whose head says something else."""
    length = 12 + int.from_bytes(delta[8:12], "little")
    with BytesIO(delta) as file:
        head, _ = deltas._opened(file, len(delta))
    return dataclasses.replace(head, **values).encode() + delta[length:]


def bombed(delta: bytes) -> bytes:
    """A delta whose last block becomes 64 MiB."""
    length = 12 + int.from_bytes(delta[8:12], "little")
    with BytesIO(delta) as file:
        head, told = deltas._opened(file, len(delta))
    bomb, table = zstandard.ZstdCompressor().compress(bytes(64 << 20)), told.copy()
    rest = delta[length + table.nbytes : len(delta) - int(table["packed"][-1])]
    table["packed"][-1] = len(bomb)
    return head.encode() + table.tobytes() + rest + bomb


def test_what_is_no_delta_of_the_file_at_hand_is_refused_and_said_why(tmp_path: Path) -> None:
    old, new = plain(1), plain(1, 1e-3)
    good = way(new, old)
    version = good.replace(b'"format":1', b'"format":2')
    bad = {
        "does not begin as one": (old, new),
        "its form is version": (old, good[:7] + b"9" + good[8:]),
        "written in version 2": (old, version),
        "its head is not written": (old, changed(good, size=-1)),
        "not JSON": (old, good.replace(b'"blocks":', b'"blocks"?')),
        "blocks by its head": (old, changed(good, blocks=2**40)),
        "its table describes": (old, good + b"x"),
        "it is of a file of": (old[:-8], good),
        "delta and zstd were expected": (old, changed(good, chain=({"name": "delta"}, {"name": "float16"}))),
        "at most were expected": (old, bombed(good)),
        "ends|describes": (old, good[:-5]),
    }
    for reason, (base, delta) in bad.items():
        with pytest.raises(HanseError, match=reason) as refused:
            applied(tmp_path, base, delta)
        assert refused.value.code in (ErrorCode.INVALID_INPUT, ErrorCode.UNKNOWN_SCHEMA), reason


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_changed_bytes_are_an_error_or_a_file_of_another_digest(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    layout = Layout.of([Entry("w", "F32", (40, 5)), Entry("n", "I64", (2,), Rule.KEEP_NEWEST)])
    draw = np.random.default_rng(3)
    old, new = (
        bytes(encode_tensors(layout, {"w": draw.standard_normal((40, 5)).astype("<f4"), "n": np.array([1, 2])}))
        for _ in range(2)
    )
    delta = bytearray(way(new, old))
    at = data.draw(st.integers(0, len(delta) - 1))
    match data.draw(st.sampled_from(["flip", "cut", "grow"])):
        case "flip":
            delta[at] ^= data.draw(st.integers(1, 255))
        case "cut":
            del delta[at:]
        case _:
            delta[at:at] = data.draw(st.binary(min_size=1, max_size=20))
    folder = tmp_path_factory.mktemp("changed")
    try:
        made = applied(folder, old, bytes(delta))
    except HanseError:
        return
    assert len(made) == len(new)


def test_a_delta_is_written_and_applied_block_by_block(tmp_path: Path) -> None:
    """Of a file of 32 MiB no more than a few blocks are in memory."""
    layout = Layout.of([Entry("w", "F32", (8 << 20,))])
    old, new = tmp_path / "old", tmp_path / "new"
    values = np.random.default_rng(1).standard_normal(8 << 20, dtype=np.float32)
    old.write_bytes(layout.header + values.tobytes())
    new.write_bytes(layout.header + (values * np.float32(1.001)).tobytes())
    del values
    tracemalloc.start()
    try:
        with old.open("rb") as before, new.open("rb") as after, (tmp_path / "delta").open("wb") as file:
            runs = [(layout.data_start, 1), (layout.data_bytes, 4)]
            deltas.write_delta(file, runs, after.read, before.read, WAY, base="0" * 64, makes="1" * 64)
        apply_delta(old, tmp_path / "delta", tmp_path / "made")
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert (tmp_path / "made").read_bytes() == new.read_bytes()


def test_a_chain_down_is_a_file_and_the_way_to_it() -> None:
    float16 = {"name": "float16"}
    assert [[each["name"] for each in part] for part in split_down([float16, *WAY])] == [["float16"], ["delta", "zstd"]]
    assert split_down([float16]) == ((float16,), ())
    assert split_down(WAY)[0] == ()


@pytest.mark.parametrize(
    ("codec", "reason"),
    [
        ({"up": list(WAY)}, "codec.up: 'delta'.*difference already"),
        ({"down": [{"name": "delta"}]}, "codec.down: .*delta.*zstd after delta"),
        ({"down": [{"name": "delta"}, {"name": "float16"}]}, "in this order"),
    ],
)
def test_a_job_whose_delta_would_save_nothing_is_refused(codec: dict[str, Any], reason: str) -> None:
    with pytest.raises(HanseError, match=reason):
        check_job_codec(check_job({"rounds": 1, "model": {"name": "mlp"}, "codec": codec}))
