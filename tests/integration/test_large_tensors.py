"""A tensor file above 2 GiB, from the arrays to the store and back: offsets and lengths beyond 31 bits."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hanse_fabric.messages import JobKind, ReduceJob, UpdateInput
from hanse_fabric.tensors.digest import LEAF_BYTES
from hanse_fabric.tensors.file import layout_of, read_tensors
from hanse_fabric.tensors.layout import Entry, Layout
from hanse_fabric.tensors.refs import ref_of_file, verify_file
from hanse_reduction.engine import Engine

ELEMENTS = (1 << 29) + 1025


@pytest.fixture
def large_file(tmp_path: Path) -> tuple[Path, Layout]:
    """A sparse file of zeros but for a few elements at both ends of a 2 GiB array and in the one after it."""
    layout = Layout.of([Entry("a", "F32", (ELEMENTS,)), Entry("b", "F32", (3,))])
    path = tmp_path / "large.safetensors"
    with path.open("wb") as file:
        file.write(layout.header)
        file.truncate(layout.size)
    mapped = np.memmap(path, dtype="<f4", mode="r+", offset=layout.data_start)
    mapped[[0, ELEMENTS - 1]] = 1, 2
    mapped[ELEMENTS:] = 3, 4, 5
    mapped.flush()
    return path, layout


@pytest.mark.large
@pytest.mark.timeout(600)
def test_a_tensor_file_above_2_gib_makes_the_round_trip(
    weed: Any, large_file: tuple[Path, Layout], tmp_path: Path
) -> None:
    path, layout = large_file
    key, store = "models/large/a", weed.store()
    assert layout.size > 2**31
    assert layout_of(path) == layout
    ref = ref_of_file(path, key=key)

    store.put_file(key, path)
    assert store.size(key) == layout.size

    # The last whole leaf lies beyond 2 GiB.
    index = len(ref.leaves) - 2
    leaf = memoryview(bytearray(LEAF_BYTES))
    store.read_into(key, index * LEAF_BYTES, leaf)
    assert hashlib.sha256(leaf).hexdigest() == ref.leaves[index]

    store.get_file(key, tmp_path / "back", limit=ref.size)
    verify_file(ref, tmp_path / "back")
    _, arrays = read_tensors(tmp_path / "back")
    assert arrays["a"].shape == (ELEMENTS,)
    assert (arrays["a"][0], arrays["a"][-1]) == (1, 2)
    assert arrays["b"].tolist() == [3, 4, 5]
    store.delete(key)


@pytest.mark.large
@pytest.mark.timeout(600)
def test_updates_above_2_gib_are_reduced_in_the_store(
    weed: Any, large_file: tuple[Path, Layout], tmp_path: Path
) -> None:
    path, _ = large_file
    store = weed.store()
    refs = []
    for name in ("model", "first", "second"):
        store.put_file(f"models/large/{name}", path)
        refs.append(ref_of_file(path, key=f"models/large/{name}"))
    model, *updates = refs
    job = ReduceJob(
        id="large", project="large", run="l" * 12, step="r1-reduce", kind=JobKind.WHOLE, round=1, strategy={},
        updates=tuple(UpdateInput(participant=p, weight=1, ref=r) for p, r in zip("ab", updates, strict=True)),
        model=model, output_key="models/large/out",
    )  # fmt: skip

    made = Engine(store).run(job).outputs["model"]

    store.get_file("models/large/out/model", tmp_path / "out", limit=made.size)
    verify_file(made, tmp_path / "out")
    _, arrays = read_tensors(tmp_path / "out")
    assert (arrays["a"][0], arrays["a"][-1]) == (2, 4)
    assert arrays["b"].tolist() == [6, 8, 10]
    for key in list(store.keys("models/large/")):
        store.delete(key)
