"""What a run leaves in the object store when it ends."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hanse_coordinator.verbs.objects import RunObjects
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ObjectRef
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.tensors.digest import LEAF_BYTES
from hanse_fabric.tensors.file import encode_tensors, layout_like
from hanse_fabric.tensors.layout import header_length
from hanse_fabric.tensors.refs import ref_of_bytes


async def test_uploads_that_a_run_began_are_aborted_and_no_others(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    mine, other = store.open_upload("models/p/runa/r1/model"), store.open_upload("models/p/runb/r1/model")

    await RunObjects(store, "p").abort_uploads("runa")

    with pytest.raises(HanseError):
        store.put_part("models/p/runa/r1/model", mine, 1, b"late")
    store.put_part("models/p/runb/r1/model", other, 1, b"goes on")


LARGEST = 64 << 20


def model_of(numbers: int) -> bytes:
    arrays = {"weight": np.arange(numbers, dtype=np.float32), "bias": np.ones(3, np.float32)}
    return encode_tensors(layout_like(arrays), arrays)


def by_another_program(data: bytes, padding: int = 0) -> bytes:
    """The same model with a header of its own."""
    length = header_length(data[:8])
    text = json.dumps(json.loads(data[8:length])).encode() + b" " * padding
    return len(text).to_bytes(8, "little") + text + data[length:]


def uploaded(store: DirectoryStore, data: bytes) -> str:
    digest = ref_of_bytes(data).digest
    store.put(f"models/p/{digest}", data)
    return digest


async def begins_with(store: DirectoryStore, data: bytes) -> tuple[ObjectRef, bytes]:
    """The model that a run begins with whose owner has uploaded a file, and its bytes."""
    ref = await RunObjects(store, "p").verified(uploaded(store, data), largest=LARGEST)
    assert ref.key is not None
    return ref, store.get(ref.key, limit=LARGEST)


@pytest.mark.parametrize("numbers", [0, 5, (8 << 18) - 64, 5 << 20])
@pytest.mark.parametrize("padding", [0, 9 << 20])
async def test_a_first_model_whose_header_another_program_wrote_is_written_anew(
    tmp_path: Path, numbers: int, padding: int
) -> None:
    own, store = model_of(numbers), DirectoryStore(tmp_path)
    ref, stored = await begins_with(store, by_another_program(own, padding))
    assert stored == own
    assert ref == ref_of_bytes(own, key=ref.key)
    assert (await begins_with(store, own))[0] == ref
    assert (await begins_with(store, by_another_program(own, padding)))[0] == ref
    assert not any((tmp_path / "uploads").iterdir())


async def test_a_header_larger_than_a_leaf_is_written_anew(tmp_path: Path) -> None:
    arrays = {f"entry {number} {'of a long name ' * 60}": np.full(1, number, np.float32) for number in range(5_000)}
    own = encode_tensors(layout_like(arrays), arrays)
    assert header_length(own[:8]) > LEAF_BYTES
    ref, stored = await begins_with(DirectoryStore(tmp_path), by_another_program(own))
    assert stored == own
    assert ref == ref_of_bytes(own, key=ref.key)


async def test_a_first_model_that_is_no_tensor_file_ends_the_run_in_words(tmp_path: Path) -> None:
    with pytest.raises(HanseError, match="initial_model: tensor file: ") as failure:
        await begins_with(DirectoryStore(tmp_path), b"some text that is no model")
    assert failure.value.code is ErrorCode.INVALID_INPUT


async def test_an_upload_of_a_first_model_that_fails_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> str:
        raise HanseError(ErrorCode.UNAVAILABLE, "the store is away")

    monkeypatch.setattr(DirectoryStore, "put_part", fails)
    with pytest.raises(HanseError, match="the store is away"):
        await begins_with(DirectoryStore(tmp_path), by_another_program(model_of(5)))
    assert not any((tmp_path / "uploads").iterdir())
