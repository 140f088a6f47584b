"""One suite of behaviour for every object store: SeaweedFS over S3, and a directory."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from directory_transfer import DirectoryTransfer
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.uploads import PartLink
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.store.port import ObjectStore
from hanse_fabric.store.transfer import HttpTransfer, Transfer

MINUTE = timedelta(minutes=1)


@pytest.fixture(params=["s3", "directory"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(kind: str, weed: Any, tmp_path: Path) -> Iterator[ObjectStore]:
    made: ObjectStore = weed.store() if kind == "s3" else DirectoryStore(tmp_path / "store")
    yield made
    made.close()


@pytest.fixture
def transfer(kind: str, store: ObjectStore, tmp_path: Path) -> Iterator[Transfer]:
    made: Transfer = HttpTransfer(patience=5) if kind == "s3" else DirectoryTransfer(tmp_path / "store")
    yield made
    made.close()


@pytest.fixture
def prefix() -> str:
    return f"models/{secrets.token_hex(6)}"


def refused(code: ErrorCode) -> Any:
    return pytest.raises(HanseError, check=lambda error: error.code is code)


def test_a_stored_object_is_read_back_as_it_was_put(store: ObjectStore, prefix: str) -> None:
    store.put(f"{prefix}/a", b"content")
    assert store.get(f"{prefix}/a", limit=7) == b"content"
    assert store.size(f"{prefix}/a") == 7
    assert store.exists(f"{prefix}/a")


def test_an_empty_object_is_an_object(store: ObjectStore, prefix: str, tmp_path: Path) -> None:
    store.put(f"{prefix}/empty", b"")
    assert store.get(f"{prefix}/empty", limit=0) == b""
    store.get_file(f"{prefix}/empty", tmp_path / "empty", limit=0)
    assert (tmp_path / "empty").read_bytes() == b""


def test_putting_again_replaces(store: ObjectStore, prefix: str) -> None:
    store.put(f"{prefix}/a", b"first")
    store.put(f"{prefix}/a", memoryview(b"second"))
    assert store.get(f"{prefix}/a", limit=10) == b"second"


def test_an_absent_object_is_not_found(store: ObjectStore, prefix: str, tmp_path: Path) -> None:
    key = f"{prefix}/absent"
    assert not store.exists(key)
    with refused(ErrorCode.NOT_FOUND):
        store.get(key, limit=10)
    with refused(ErrorCode.NOT_FOUND):
        store.size(key)
    with refused(ErrorCode.NOT_FOUND):
        store.read_into(key, 0, memoryview(bytearray(1)))
    with refused(ErrorCode.NOT_FOUND):
        store.get_file(key, tmp_path / "file", limit=10)
    assert list(tmp_path.glob("*file*")) == []


def test_deleting_twice_is_fine(store: ObjectStore, prefix: str) -> None:
    store.put(f"{prefix}/a", b"x")
    store.delete(f"{prefix}/a")
    store.delete(f"{prefix}/a")
    assert not store.exists(f"{prefix}/a")


def test_one_of_many_conditional_writers_wins(store: ObjectStore, prefix: str) -> None:
    assert store.abilities.conditional_put

    def write(number: int) -> bool:
        try:
            store.put(f"{prefix}/pointer", str(number).encode(), if_absent=True)
        except HanseError as error:
            assert error.code is ErrorCode.CONFLICT  # noqa: PT017
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        wins = list(threads.map(write, range(8)))
    assert wins.count(True) == 1
    assert store.get(f"{prefix}/pointer", limit=1) == str(wins.index(True)).encode()


def test_more_than_the_limit_is_too_large(store: ObjectStore, prefix: str, tmp_path: Path) -> None:
    store.put(f"{prefix}/a", b"0123456789")
    with refused(ErrorCode.TOO_LARGE):
        store.get(f"{prefix}/a", limit=9)
    with refused(ErrorCode.TOO_LARGE):
        store.get_file(f"{prefix}/a", tmp_path / "file", limit=9)
    assert not (tmp_path / "file").exists()


def test_a_range_fills_the_buffer(store: ObjectStore, prefix: str) -> None:
    data = os.urandom(300_000)
    store.put(f"{prefix}/a", data)
    buffer = bytearray(100_001)
    store.read_into(f"{prefix}/a", 150_000, memoryview(buffer))
    assert buffer == data[150_000:250_001]
    store.read_into(f"{prefix}/a", 0, memoryview(buffer)[:10])
    assert buffer[:10] == data[:10]


@pytest.mark.parametrize("offset", [0, 5, 10, 11])
def test_a_range_beyond_the_end_is_refused(store: ObjectStore, prefix: str, offset: int) -> None:
    store.put(f"{prefix}/a", b"0123456789")
    with refused(ErrorCode.INVALID_INPUT):
        store.read_into(f"{prefix}/a", offset, memoryview(bytearray(11)))


def test_a_range_is_read_piece_by_piece_and_many_side_by_side(store: ObjectStore, prefix: str) -> None:
    data = os.urandom(3_000_000)
    store.put(f"{prefix}/a", data)
    starts, length = [0, 1, 1_000_000, 1_999_999], 1_000_001
    readers = [store.open_range(f"{prefix}/a", start, length) for start in starts]
    found = [bytearray(length) for _ in starts]
    for at in range(0, length, 300_000):
        for reader, buffer in zip(readers, found, strict=True):
            reader.read_into(memoryview(buffer)[at : at + 300_000])
    assert found == [data[start : start + length] for start in starts]
    for reader in readers:
        with refused(ErrorCode.INVALID_INPUT):
            reader.read_into(memoryview(bytearray(1)))
        reader.close()


def test_a_range_that_is_closed_early_does_not_disturb_later_requests(store: ObjectStore, prefix: str) -> None:
    data = os.urandom(3_000_000)
    store.put(f"{prefix}/a", data)
    for _ in range(3):
        with store.open_range(f"{prefix}/a", 5, len(data) - 5) as reader:
            buffer = bytearray(10)
            reader.read_into(memoryview(buffer))
            assert buffer == data[5:15]
    assert store.get(f"{prefix}/a", limit=len(data)) == data


def test_an_empty_range_is_read(store: ObjectStore, prefix: str) -> None:
    store.put(f"{prefix}/a", b"0123456789")
    with store.open_range(f"{prefix}/a", 10, 0) as reader:
        reader.read_into(memoryview(bytearray()))


@pytest.mark.parametrize("offset", [0, 5, 10, 11])
def test_opening_a_range_beyond_the_end_is_refused(store: ObjectStore, prefix: str, offset: int) -> None:
    store.put(f"{prefix}/a", b"0123456789")
    with refused(ErrorCode.INVALID_INPUT):
        store.open_range(f"{prefix}/a", offset, 11)
    with refused(ErrorCode.NOT_FOUND):
        store.open_range(f"{prefix}/absent", offset, 11)


def test_a_large_file_comes_back(store: ObjectStore, prefix: str, tmp_path: Path) -> None:
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(os.urandom((20 << 20) + 17))
    store.put_file(f"{prefix}/a", source)
    store.get_file(f"{prefix}/a", back, limit=source.stat().st_size)
    assert back.read_bytes() == source.read_bytes()
    store.put_file(f"{prefix}/b", source)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "store") == ["back", "source"]


def test_keys_are_listed_by_prefix(store: ObjectStore, prefix: str) -> None:
    for name in ("a", "b/c", "b/d", "bc"):
        store.put(f"{prefix}/{name}", b"x")
    assert list(store.keys(f"{prefix}/")) == [f"{prefix}/{name}" for name in ("a", "b/c", "b/d", "bc")]
    assert list(store.keys(f"{prefix}/b/")) == [f"{prefix}/b/c", f"{prefix}/b/d"]
    assert list(store.keys(f"{prefix}/b")) == [f"{prefix}/b/c", f"{prefix}/b/d", f"{prefix}/bc"]
    assert list(store.keys(f"{prefix}/none/")) == []


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "a/../b", "a/./b", "a b", "a\n", "é", "a" * 513])
def test_a_key_of_another_form_is_refused(store: ObjectStore, key: str) -> None:
    with refused(ErrorCode.INVALID_INPUT):
        store.put(key, b"x")
    with refused(ErrorCode.INVALID_INPUT):
        store.link_get(key, MINUTE)


def test_parts_are_composed_in_order_of_their_numbers(store: ObjectStore, prefix: str) -> None:
    key, parts = f"{prefix}/a", [os.urandom(5 << 20), os.urandom(5 << 20), b"end"]
    upload = store.open_upload(key)
    etags = [(number, store.put_part(key, upload, number, parts[number - 1])) for number in (3, 1, 2)]
    assert not store.exists(key)
    store.close_upload(key, upload, etags)
    assert store.get(key, limit=11 << 20) == b"".join(parts)


def test_a_part_that_is_put_twice_has_the_second_content(store: ObjectStore, prefix: str) -> None:
    key = f"{prefix}/a"
    upload = store.open_upload(key)
    store.put_part(key, upload, 1, b"first")
    store.close_upload(key, upload, [(1, store.put_part(key, upload, 1, b"second"))])
    assert store.get(key, limit=10) == b"second"


def test_an_upload_may_be_closed_twice_but_not_without_being_opened(store: ObjectStore, prefix: str) -> None:
    key = f"{prefix}/a"
    upload = store.open_upload(key)
    etags = [(1, store.put_part(key, upload, 1, b"x"))]
    store.close_upload(key, upload, etags)
    store.close_upload(key, upload, etags)
    assert store.get(key, limit=1) == b"x"
    with refused(ErrorCode.NOT_FOUND):
        store.close_upload(f"{prefix}/other", upload, etags)


def test_an_upload_that_is_aborted_leaves_nothing(store: ObjectStore, prefix: str) -> None:
    key = f"{prefix}/a"
    upload = store.open_upload(key)
    etags = [(1, store.put_part(key, upload, 1, b"x"))]
    store.abort_upload(key, upload)
    store.abort_upload(key, upload)
    with refused(ErrorCode.NOT_FOUND):
        store.close_upload(key, upload, etags)
    assert not store.exists(key)


def test_unfinished_uploads_are_aborted_by_prefix(store: ObjectStore, prefix: str) -> None:
    doomed = [(key, store.open_upload(key)) for key in (f"{prefix}/run/a", f"{prefix}/run/a", f"{prefix}/run/deep/b")]
    other = f"{prefix}/other/a"
    spared = store.open_upload(other)
    for key, upload in [*doomed, (other, spared)]:
        store.put_part(key, upload, 1, b"x")
    store.put(f"{prefix}/run/whole", b"y")
    assert store.abort_uploads(f"{prefix}/run/") == 3
    assert store.abort_uploads(f"{prefix}/run/") == 0
    for key, upload in doomed:
        with refused(ErrorCode.NOT_FOUND):
            store.close_upload(key, upload, [(1, "x")])
    store.close_upload(other, spared, [(1, store.put_part(other, spared, 1, b"z"))])
    assert store.get(other, limit=1) == b"z"
    assert store.get(f"{prefix}/run/whole", limit=1) == b"y"


def test_an_object_larger_than_announced_is_refused(
    store: ObjectStore, transfer: Transfer, prefix: str, tmp_path: Path
) -> None:
    store.put(f"{prefix}/a", os.urandom(100_000))
    with refused(ErrorCode.TOO_LARGE):
        transfer.fetch(store.link_get(f"{prefix}/a", MINUTE), tmp_path / "file", limit=99_999)
    assert [path.name for path in tmp_path.iterdir() if path.name != "store"] == []


def test_a_link_is_good_for_one_method_and_one_key(
    store: ObjectStore, transfer: Transfer, prefix: str, tmp_path: Path
) -> None:
    store.put(f"{prefix}/a", b"x")
    store.put(f"{prefix}/b", b"y")
    (tmp_path / "file").write_bytes(b"z")
    get = store.link_get(f"{prefix}/a", MINUTE)
    put, _ = store.link_part(f"{prefix}/c", store.open_upload(f"{prefix}/c"), 1, 1, "0" * 64, MINUTE)
    for refusal in (
        lambda: transfer.send_part(tmp_path / "file", PartLink(number=1, url=get, headers={}), 0, 1),
        lambda: transfer.fetch(put, tmp_path / "back", limit=9),
        lambda: transfer.fetch(get.replace(f"{prefix}/a", f"{prefix}/b"), tmp_path / "back", limit=9),
    ):
        with pytest.raises(HanseError) as caught:
            refusal()
        assert caught.value.code in (ErrorCode.FORBIDDEN, ErrorCode.UNAUTHENTICATED)
    assert store.get(f"{prefix}/a", limit=1) == b"x"


def test_a_link_to_what_is_absent_finds_nothing(
    store: ObjectStore, transfer: Transfer, prefix: str, tmp_path: Path
) -> None:
    with refused(ErrorCode.NOT_FOUND):
        transfer.fetch(store.link_get(f"{prefix}/absent", MINUTE), tmp_path / "file", limit=1)


def test_a_store_that_runs_is_ready(store: ObjectStore) -> None:
    assert store.ready()
