"""Uploads by links to their parts, at SeaweedFS and in a directory: what is taken, and what survives breaks."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import urllib3

from directory_transfer import DirectoryTransfer
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.objects import ObjectRef
from hanse_fabric.messages.uploads import PartLink, UploadState, UploadStep
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.store.file_upload import FileUpload
from hanse_fabric.store.port import ObjectStore
from hanse_fabric.store.transfer import CHECKSUM, HttpTransfer, Transfer
from hanse_fabric.store.uploads import go_on
from hanse_fabric.tensors.digest import LEAF_BYTES, digest_bytes
from links import ref_of_file

MINUTE = timedelta(minutes=1)


@pytest.fixture(params=["s3", "directory"])
def ends(request: pytest.FixtureRequest, weed: Any, tmp_path: Path) -> Iterator[tuple[ObjectStore, Transfer]]:
    """A store as the coordinator has it, which may list updates and not read them; and a site's way there."""
    store: ObjectStore = weed.store("coordinator") if request.param == "s3" else DirectoryStore(tmp_path / "store")
    transfer: Transfer = HttpTransfer(patience=5) if request.param == "s3" else DirectoryTransfer(tmp_path / "store")
    yield store, transfer
    store.close()
    transfer.close()


@pytest.fixture
def key() -> str:
    return f"updates/{secrets.token_hex(6)}/run/north/task/digest"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of two leaves and a bit."""
    made = tmp_path / "update"
    made.write_bytes(os.urandom(2 * LEAF_BYTES + 1000))
    return made


class Hub:
    """Answers steps, and remembers them."""

    def __init__(self, store: ObjectStore, key: str, ref: ObjectRef) -> None:
        self.store, self.key, self.ref = store, key, ref
        self.steps: list[UploadStep] = []

    async def ask(self, step: UploadStep) -> UploadState:
        self.steps.append(step)
        return go_on(self.store, self.key, self.ref, step, MINUTE)


def begun(store: ObjectStore, key: str, content: bytes) -> tuple[ObjectRef, PartLink, str]:
    """An upload of one part: what was announced, the part's link, the upload's id."""
    ref = ObjectRef(digest=hashlib.sha256(content).hexdigest(), size=len(content))
    state = go_on(store, key, ref, UploadStep(digests=(ref.digest,)), MINUTE)
    return ref, state.parts[0], state.upload


async def test_a_file_goes_up_in_parts_and_what_is_there_does_not_go_again(
    ends: tuple[ObjectStore, Transfer], key: str, path: Path, weed: Any
) -> None:
    store, transfer = ends
    hub = Hub(store, key, ref_of_file(path))
    assert await FileUpload(transfer, path, hub.ref).run(hub.ask) == key
    assert [(len(step.etags), len(step.digests)) for step in hub.steps] == [(0, 3), (3, 0)]
    reader = weed.store() if isinstance(transfer, HttpTransfer) else store
    assert digest_bytes(reader.get(key, limit=hub.ref.size))[0] == hub.ref.digest
    assert await FileUpload(transfer, path, hub.ref).run(hub.ask) == key
    assert len(hub.steps) == 3


async def test_an_upload_that_breaks_goes_on_where_it_was(
    ends: tuple[ObjectStore, Transfer], key: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, transfer = ends
    hub, send, sent = Hub(store, key, ref_of_file(path)), transfer.send_part, []

    def breaks(path: Path, part: PartLink, start: int, size: int) -> str:
        sent.append(part.number)
        if sent.count(2) == 1 and part.number == 2:
            raise HanseError(ErrorCode.GONE, "the link has expired")
        return send(path, part, start, size)

    monkeypatch.setattr(transfer, "send_part", breaks)
    upload = FileUpload(transfer, path, hub.ref)
    with pytest.raises(HanseError, check=lambda error: error.code is ErrorCode.UNAVAILABLE):
        await upload.run(hub.ask)
    assert await upload.run(hub.ask) == key
    assert sent.count(1) == 1
    assert [len(step.etags) for step in hub.steps] == [0, 1, 3]
    assert len({step.upload for step in hub.steps} - {""}) == 1


async def test_an_upload_that_the_hub_gave_up_begins_anew(
    ends: tuple[ObjectStore, Transfer], key: str, path: Path
) -> None:
    store, transfer = ends
    hub = Hub(store, key, ref_of_file(path))

    async def gives_up(step: UploadStep) -> UploadState:
        state = await hub.ask(step)
        store.abort_upload(key, state.upload)
        return state

    upload = FileUpload(transfer, path, hub.ref)
    with pytest.raises(HanseError, check=lambda error: error.code is ErrorCode.UNAVAILABLE):
        await upload.run(gives_up)
    assert await upload.run(hub.ask) == key


@pytest.mark.parametrize("content", [b"other", b"much longer", b"less"])
def test_a_parts_link_takes_no_other_bytes_than_were_announced(
    ends: tuple[ObjectStore, Transfer], key: str, tmp_path: Path, content: bytes
) -> None:
    store, transfer = ends
    _, part, _ = begun(store, key, b"right")
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(HanseError) as caught:
        transfer.send_part(tmp_path / "other", part, 0, len(content))
    assert caught.value.code in (ErrorCode.FORBIDDEN, ErrorCode.UNAUTHENTICATED, ErrorCode.INVALID_INPUT)
    (tmp_path / "right").write_bytes(b"right")
    assert transfer.send_part(tmp_path / "right", part, 0, 5)


@pytest.mark.parametrize("over", ["closed", "aborted"])
def test_a_parts_link_ends_with_its_upload(
    ends: tuple[ObjectStore, Transfer], key: str, tmp_path: Path, over: str
) -> None:
    store, transfer = ends
    ref, part, upload = begun(store, key, b"right")
    (tmp_path / "right").write_bytes(b"right")
    etag = transfer.send_part(tmp_path / "right", part, 0, 5)
    if over == "closed":
        for _ in range(2):  # the first answer may be lost
            assert go_on(store, key, ref, UploadStep(upload=upload, etags=(etag,)), MINUTE).stored
    else:
        assert store.abort_uploads(key.partition("/run/")[0] + "/run/") == 1
    with pytest.raises(HanseError, check=lambda error: error.code is ErrorCode.NOT_FOUND):
        transfer.send_part(tmp_path / "right", part, 0, 5)
    assert store.find(key) == (5 if over == "closed" else None)


def test_an_object_is_never_replaced(ends: tuple[ObjectStore, Transfer], key: str, tmp_path: Path) -> None:
    store, transfer = ends
    (tmp_path / "a").write_bytes(b"first")
    (tmp_path / "b").write_bytes(b"the second")
    ends_of = []
    for name in ("a", "b"):
        content = (tmp_path / name).read_bytes()
        ref, part, upload = begun(store, key, content)
        ends_of.append(
            (ref, UploadStep(upload=upload, etags=(transfer.send_part(tmp_path / name, part, 0, len(content)),)))
        )
    (first, step), (second, other) = ends_of
    assert go_on(store, key, first, step, MINUTE).stored
    with pytest.raises(HanseError, check=lambda error: error.code is ErrorCode.CONFLICT):
        go_on(store, key, second, other, MINUTE)
    assert store.find(key) == 5


async def test_the_store_compresses_no_part_that_it_is_sent(weed: Any, tmp_path: Path, key: str) -> None:
    """It would where a part begins with zeros, and unpack it for each range that is read."""
    path = tmp_path / "update"
    path.write_bytes(bytes(LEAF_BYTES + (4 << 20)))
    ref, store = ref_of_file(path), weed.store("coordinator")

    def written() -> int:
        return sum(file.stat().st_size for file in weed.folder.rglob("*.dat"))

    before = written()
    await FileUpload(HttpTransfer(patience=5), path, ref).run(Hub(store, key, ref).ask)
    sent = written() - before
    upload = store.open_upload(f"{key}-put")
    store.put_part(f"{key}-put", upload, 2, bytes(ref.size))
    put = written() - before - sent
    # The control: the same bytes, of which nobody says what they are.
    links = Hub(store, f"{key}-untyped", ref)
    state = await links.ask(UploadStep(digests=ref.leaves or ()))
    part = state.parts[1]
    headers = {CHECKSUM: part.headers[CHECKSUM]}
    answer = await asyncio.to_thread(urllib3.request, "PUT", part.url, body=bytes(4 << 20), headers=headers)
    assert answer.status == 200
    assert written() - before - sent - put < 1 << 20
    assert min(sent, put) >= ref.size
