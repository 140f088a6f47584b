"""Digests by leaves, and references that are verified against them."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.tensors import digest, refs
from hanse_fabric.tensors.digest import (
    LEAF_BYTES,
    Digester,
    digest_bytes,
    digest_file,
    digest_object,
    leaf_count,
    whole_leaves,
)
from hanse_fabric.tensors.refs import check_leaves, ref_of_bytes, ref_of_file, verify_bytes, verify_file


@pytest.fixture
def small_leaves(monkeypatch: pytest.MonkeyPatch) -> int:
    """Leaves of 8 bytes, so that few bytes make many of them."""
    monkeypatch.setattr(digest, "LEAF_BYTES", 8)
    monkeypatch.setattr(refs, "LEAF_BYTES", 8)
    return 8


def test_a_small_object_has_its_plain_sha256() -> None:
    assert digest_bytes(b"content") == (hashlib.sha256(b"content").hexdigest(), ())
    assert digest_bytes(b"") == (hashlib.sha256(b"").hexdigest(), ())


def test_a_whole_leaf_is_still_one_leaf_and_a_byte_more_makes_two() -> None:
    assert digest_bytes(bytes(LEAF_BYTES))[1] == ()
    found, leaves = digest_bytes(bytes(LEAF_BYTES + 1))
    assert leaves == (hashlib.sha256(bytes(LEAF_BYTES)).hexdigest(), hashlib.sha256(bytes(1)).hexdigest())
    assert found == hashlib.sha256(b"".join(bytes.fromhex(leaf) for leaf in leaves)).hexdigest()


def test_a_leaf_has_8_mib_in_every_release() -> None:
    """Digests are signed, stored, and compared between sites of several releases."""
    expected = "63af2582fbcfb2d99bb9e647355c3f58d108117d10c72d35bf2441fff6f3cff8"
    assert digest_bytes(bytes(8 * 1024 * 1024 + 1))[0] == expected


@pytest.mark.parametrize(("there", "whole"), [(0, 0), (7, 0), (8, 1), (15, 1), (16, 2), (19, 2), (20, 3)])
def test_of_a_file_that_came_in_part_the_leaves_up_to_the_first_other_one_are_whole(
    small_leaves: int, tmp_path: Path, there: int, whole: int
) -> None:
    data = bytearray(range(20))
    leaves = digest_bytes(bytes(data))[1]
    (tmp_path / "part").write_bytes(data[:there])
    assert whole_leaves(tmp_path / "part", leaves) == whole
    data[8] ^= 1
    (tmp_path / "part").write_bytes(data[:there])
    assert whole_leaves(tmp_path / "part", leaves) == min(whole, 1), "what comes after a leaf that is another is not"


@settings(max_examples=50, deadline=None)
@given(data=st.binary(max_size=60), cuts=st.lists(st.integers(0, 60), max_size=6))
def test_bytes_have_one_digest_in_memory_in_a_file_in_the_store_and_piece_by_piece(
    data: bytes, cuts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    hashed = [hashlib.sha256(data[start : start + 8]) for start in range(0, max(len(data), 1), 8)]
    expected = (
        hashed[0].hexdigest() if len(hashed) == 1 else hashlib.sha256(b"".join(h.digest() for h in hashed)).hexdigest(),
        tuple(h.hexdigest() for h in hashed) if len(hashed) > 1 else (),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digest, "LEAF_BYTES", 8)
        patch.setattr(digest, "_READ_BYTES", 12)
        folder = tmp_path_factory.mktemp("digest")
        (folder / "file").write_bytes(data)
        store, pieces = DirectoryStore(folder / "store"), Digester()
        store.put("models/a", data)
        for start, end in pairwise([0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]):
            pieces.update(data[start:end])
        assert digest_bytes(data) == expected
        assert digest_file(folder / "file") == expected
        assert digest_object(store, "models/a", len(data)) == expected
        assert pieces.result() == expected
        assert leaf_count(len(data)) == len(hashed)


def test_a_reference_verifies_what_it_was_made_of(small_leaves: int, tmp_path: Path) -> None:
    data = bytes(range(20))
    (tmp_path / "file").write_bytes(data)
    ref = ref_of_file(tmp_path / "file", key="models/a")
    assert ref == ref_of_bytes(data, key="models/a")
    check_leaves(ref)
    verify_bytes(ref, data)
    verify_file(ref, tmp_path / "file")


@pytest.mark.parametrize(("at", "leaf"), [(0, 0), (7, 0), (8, 1), (19, 2)])
def test_a_changed_byte_is_found_and_its_leaf_named(small_leaves: int, tmp_path: Path, at: int, leaf: int) -> None:
    data = bytearray(range(20))
    ref = ref_of_bytes(bytes(data))
    data[at] ^= 1
    (tmp_path / "file").write_bytes(data)
    for verify in (lambda: verify_bytes(ref, bytes(data)), lambda: verify_file(ref, tmp_path / "file")):
        with pytest.raises(HanseError, match=f"leaf {leaf} ") as caught:
            verify()
        assert caught.value.code is ErrorCode.TAMPERED


def test_another_size_than_announced_is_refused() -> None:
    ref = ref_of_bytes(b"12345")
    with pytest.raises(HanseError) as longer:
        verify_bytes(ref, b"123456")
    assert longer.value.code is ErrorCode.TOO_LARGE
    with pytest.raises(HanseError) as shorter:
        verify_bytes(ref, b"1234")
    assert shorter.value.code is ErrorCode.TAMPERED


def test_leaves_that_do_not_make_the_digest_are_refused(small_leaves: int) -> None:
    ref = ref_of_bytes(bytes(range(20)))
    for leaves in (ref.leaves[::-1], ref.leaves[:-1], (), (*ref.leaves, ref.leaves[0])):
        with pytest.raises(HanseError) as caught:
            check_leaves(ref.model_copy(update={"leaves": leaves}))
        assert caught.value.code is ErrorCode.TAMPERED


def test_an_inline_reference_carries_its_bytes_across_the_wire() -> None:
    ref = ref_of_bytes(b"\x00\xffcontent", inline=True)
    back = type(ref).model_validate_json(ref.model_dump_json())
    assert back.inline == b"\x00\xffcontent"
    verify_bytes(back, back.inline)
