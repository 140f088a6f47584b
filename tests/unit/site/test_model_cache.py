"""Models that come with their task are verified and kept as those from the store are."""

import base64
from pathlib import Path

import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ObjectRef
from hanse_fabric.store.transfer import Came
from hanse_fabric.tensors.digest import digest_bytes
from hanse_site.cache import KEPT, ModelCache


def inline(data: bytes) -> ObjectRef:
    digest, leaves = digest_bytes(data)
    return ObjectRef(digest=digest, size=len(data), leaves=leaves, inline=base64.b64encode(data))


async def no_download(path: Path, came: Came) -> None:
    raise AssertionError(f"{path} was asked of the store")


async def test_an_inline_model_is_kept_under_its_digest_and_asked_of_nobody(tmp_path: Path) -> None:
    cache = ModelCache(tmp_path / "cache")
    ref = inline(b"a model")
    path = await cache.get(ref, no_download)
    assert path.name == ref.digest
    assert path.read_bytes() == b"a model"
    assert await cache.get(ref, no_download) == path
    assert [found.name for found in path.parent.iterdir()] == [ref.digest]


@pytest.mark.parametrize("size", [6, 8])
async def test_an_inline_model_that_is_not_what_it_is_named_is_refused_and_leaves_nothing(
    tmp_path: Path, size: int
) -> None:
    cache = ModelCache(tmp_path / "cache")
    ref = inline(b"a model").model_copy(update={"inline": b"another"[:size], "size": size})
    with pytest.raises(HanseError, match="another digest") as caught:
        await cache.get(ref, no_download)
    assert caught.value.code is ErrorCode.TAMPERED
    assert not any(path.is_file() for path in tmp_path.rglob("*"))  # noqa: ASYNC240 - a test's own few files


async def test_the_newest_inline_models_stay_and_older_ones_go(tmp_path: Path) -> None:
    cache = ModelCache(tmp_path / "cache")
    refs = [inline(f"model {number}".encode()) for number in range(KEPT + 3)]
    for ref in refs:
        await cache.get(ref, no_download)
    there = {path.name for path in (tmp_path / "cache").iterdir()} - {"spare"}
    assert there == {ref.digest for ref in refs[-KEPT:]}
