"""Files written over old ones: the content is the new one's, to the byte, however long the old one was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hanse_fabric.store.files import whole_file
from hanse_fabric.tensors.file import layout_like, read_tensors, write_tensors


@pytest.mark.parametrize("old", [b"", b"x", b"a longer content than the new one"])
def test_a_recycled_file_has_the_new_content_only(tmp_path: Path, old: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(old)
    with whole_file(path, sync=False, over=path) as file:
        file.write(b"new content")
    assert path.read_bytes() == b"new content"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("size", [1, 5000])
def test_a_tensor_file_over_a_spare_is_the_same_as_a_new_one(tmp_path: Path, size: int) -> None:
    arrays = {"w": np.arange(100, dtype=np.float32)}
    spare = tmp_path / "spare"
    spare.write_bytes(b"x" * size)
    write_tensors(tmp_path / "new", layout_like(arrays), arrays)
    write_tensors(tmp_path / "over", layout_like(arrays), arrays, over=spare)
    assert (tmp_path / "over").read_bytes() == (tmp_path / "new").read_bytes()
    assert not spare.exists()
    np.testing.assert_array_equal(read_tensors(tmp_path / "over")[1]["w"], arrays["w"])
