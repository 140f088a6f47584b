"""Transfers that break in the middle of a leaf, or whose process is killed: what came is not sent a second time.

The bytes are counted by a proxy before a real object store.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.objects import ObjectRef
from hanse_fabric.messages.uploads import PartLink, UploadState, UploadStep
from hanse_fabric.store.file_upload import FileUpload
from hanse_fabric.store.s3 import S3Store
from hanse_fabric.store.transfer import Came, HttpTransfer
from hanse_fabric.store.uploads import go_on
from hanse_fabric.tensors.digest import LEAF_BYTES, digest_bytes
from hanse_site.cache import ModelCache
from links import ref_of_file
from resuming import fetching
from servers import free_ports

MINUTE = timedelta(minutes=1)
SIZE = 2 * LEAF_BYTES + 1000
SLACK = 1 << 17
"""What a process that is killed may have read and not written yet, and what HTTP says besides."""


class Line:
    """A line to a port of this machine that counts what passes, and is cut at a byte."""

    def __init__(self, port: int) -> None:
        self.to, self.port = port, free_ports(1)[0]
        self.up = self.down = 0
        self.cut_down: int | None = None
        """The line is cut, once, when so many bytes have come down."""
        self.hold_up: int | None = None
        self.hold_down: int | None = None
        """From so many bytes on nothing passes any more, until this is None."""
        self._dropped = 0
        self._loop, ready = asyncio.new_event_loop(), threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(30)

    def go_on(self) -> None:
        """Nothing is held any more; what was is lost."""
        self._dropped += 1
        self.hold_up = self.hold_down = None

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)

    def _run(self, ready: threading.Event) -> None:
        self._loop.run_until_complete(asyncio.start_server(self._joined, "127.0.0.1", self.port))
        ready.set()
        self._loop.run_forever()

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.to)
        await asyncio.gather(self._carry_up(reader, back), self._carry_down(there, writer))

    async def _carry_up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        since = self._dropped
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                while self.hold_up is not None and self.up >= self.hold_up:  # noqa: ASYNC110 - set by another thread
                    await asyncio.sleep(0.01)
                if since != self._dropped:
                    break
                self.up += len(data)
                writer.write(data)
                await writer.drain()
        writer.close()

    async def _carry_down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        since = self._dropped
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                while self.hold_down is not None and self.down >= self.hold_down:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                if since != self._dropped:
                    break
                if self.cut_down is not None and self.down + len(data) >= self.cut_down:
                    data, self.cut_down = data[: self.cut_down - self.down], None
                    self.down += len(data)
                    writer.write(data)
                    break
                self.down += len(data)
                writer.write(data)
                await writer.drain()
        writer.close()


@pytest.fixture
def line(weed: Any) -> Iterator[Line]:
    made = Line(weed.port)
    yield made
    made.close()


@pytest.fixture
def store(weed: Any, line: Line) -> Iterator[S3Store]:
    """The hub's, whose links lead over the line."""
    made: S3Store = weed.store(public_url=f"http://127.0.0.1:{line.port}")
    yield made
    made.close()


@pytest.fixture
def model(store: S3Store, tmp_path: Path) -> tuple[ObjectRef, str]:
    """A model in the store, and a link to it."""
    data, key = os.urandom(SIZE), f"models/{secrets.token_hex(6)}"
    store.put(key, data)
    digest, leaves = digest_bytes(data)
    return ObjectRef(digest=digest, size=SIZE, leaves=leaves, key=key), store.link_get(key, MINUTE)


PROGRAM = """
import asyncio, sys
from pathlib import Path
sys.path[:0] = {path!r}
from hanse_fabric.messages.objects import ObjectRef
from hanse_fabric.store.transfer import HttpTransfer
from hanse_fabric.store.file_upload import FileUpload
from resuming import fetching, asking
from hanse_site.cache import ModelCache
ref = ObjectRef.model_validate_json(sys.argv[2])
transfer = HttpTransfer(patience=30)
if sys.argv[1] == "down":
    asyncio.run(ModelCache(Path(sys.argv[3])).get(ref, fetching(transfer, ref, sys.argv[4])))
else:
    file = Path(sys.argv[3])
    asyncio.run(FileUpload(transfer, file, ref, notes=file.with_name("notes")).run(asking(Path(sys.argv[4]))))
"""


def process(way: str, ref: ObjectRef, *words: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-c", PROGRAM.format(path=sys.path), way, ref.model_dump_json(), *words]
    return subprocess.Popen(argv)


def killed_when(running: subprocess.Popen[bytes], reached: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not reached():
        assert running.poll() is None, "it has ended"
        assert time.monotonic() < end
        time.sleep(0.005)
    running.kill()
    running.wait(30)


@pytest.mark.parametrize("spare", [False, True], ids=["fresh", "over an old file"])
async def test_a_download_whose_line_is_cut_within_a_leaf_goes_on_at_the_byte(
    model: tuple[ObjectRef, str], line: Line, tmp_path: Path, spare: bool
) -> None:
    ref, url = model
    folder = tmp_path / "cache"
    if spare:
        folder.mkdir()
        (folder / "spare").write_bytes(bytes(SIZE + 5))
    line.cut_down = LEAF_BYTES + 12_345
    transfer = HttpTransfer(patience=20)
    path = await ModelCache(folder).get(ref, fetching(transfer, ref, url))
    transfer.close()
    assert digest_bytes(path.read_bytes())[0] == ref.digest
    assert SIZE <= line.down < SIZE + 4096


@pytest.mark.parametrize("spare", [False, True], ids=["fresh", "over an old file"])
async def test_a_download_goes_on_after_its_process_was_killed(
    model: tuple[ObjectRef, str], line: Line, tmp_path: Path, spare: bool
) -> None:
    """At the byte that was written; over an old file, whose end nobody can tell from it, behind the last whole leaf."""
    ref, url = model
    folder = tmp_path / "cache"
    if spare:
        folder.mkdir()
        (folder / "spare").write_bytes(bytes(SIZE))
    stopped, partial = LEAF_BYTES + LEAF_BYTES // 2, folder / f"{ref.digest}.part"
    line.hold_down = stopped
    running = process("down", ref, str(folder), url)

    def reached() -> bool:
        if line.down < stopped or not partial.exists():
            return False
        with partial.open("rb") as file:
            file.seek(stopped - SLACK)
            return any(file.read(64))  # one byte of a model may be zero

    killed_when(running, reached)
    line.go_on()
    transfer = HttpTransfer(patience=20)
    path = await ModelCache(folder).get(ref, fetching(transfer, ref, url))
    transfer.close()
    assert digest_bytes(path.read_bytes())[0] == ref.digest
    assert SIZE <= line.down < SIZE + (LEAF_BYTES // 2 if spare else 0) + 2 * SLACK


async def test_a_thread_that_nobody_waits_for_writes_no_more_to_what_another_goes_on_with(
    model: tuple[ObjectRef, str], line: Line, tmp_path: Path
) -> None:
    """Else a store could answer it with other bytes, once the model was verified."""
    ref, url = model
    cache, transfer, stopped = ModelCache(tmp_path / "cache"), HttpTransfer(patience=20), LEAF_BYTES // 2
    line.hold_down = stopped
    ended: list[Came] = []

    async def download(path: Path, came: Came) -> None:
        ended.append(came)
        await fetching(transfer, ref, url)(path, came)

    first = asyncio.create_task(cache.get(ref, download))
    while line.down < stopped:  # noqa: ASYNC110 - counted by another thread
        await asyncio.sleep(0.01)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    with pytest.raises(HanseError, check=lambda error: error.code is ErrorCode.CANCELLED), ended[0].writing():
        pass
    line.hold_down = None
    assert digest_bytes((await cache.get(ref, download)).read_bytes())[0] == ref.digest
    transfer.close()


async def test_what_was_written_wrongly_before_the_kill_is_fetched_again_and_no_whole_leaf_twice(
    model: tuple[ObjectRef, str], line: Line, tmp_path: Path, weed: Any
) -> None:
    ref, url = model
    folder, whole = tmp_path / "cache", weed.store()
    folder.mkdir()
    assert ref.key is not None
    data = whole.get(ref.key, limit=SIZE)
    (folder / f"{ref.digest}.part").write_bytes(data[:LEAF_BYTES] + bytes(1_000_000))
    transfer = HttpTransfer(patience=20)
    path = await ModelCache(folder).get(ref, fetching(transfer, ref, url))
    transfer.close()
    assert path.read_bytes() == data
    assert line.down < 2 * (SIZE - LEAF_BYTES) + 4096
    whole.close()


async def test_what_the_store_has_changed_is_refused_although_its_beginning_is_here(
    model: tuple[ObjectRef, str], store: S3Store, tmp_path: Path
) -> None:
    ref, url = model
    folder = tmp_path / "cache"
    folder.mkdir()
    assert ref.key is not None
    (folder / f"{ref.digest}.part").write_bytes(store.get(ref.key, limit=SIZE)[: LEAF_BYTES + 5])
    store.put(ref.key, os.urandom(SIZE))
    with pytest.raises(HanseError, check=lambda error: error.code is ErrorCode.TAMPERED):
        await ModelCache(folder).get(ref, fetching(HttpTransfer(patience=5), ref, url))
    assert list(folder.iterdir()) == []


class Hub:
    """Answers steps of an upload, from a thread."""

    def __init__(self, store: S3Store, key: str, ref: ObjectRef, folder: Path) -> None:
        self.store, self.key, self.ref, self.folder = store, key, ref, folder
        self.steps: list[UploadStep] = []
        self._over = threading.Event()
        folder.mkdir()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def answer(self, step: UploadStep) -> UploadState:
        self.steps.append(step)
        return go_on(self.store, self.key, self.ref, step, MINUTE)

    async def ask(self, step: UploadStep) -> UploadState:
        return await asyncio.to_thread(self.answer, step)

    def _serve(self) -> None:
        while not self._over.wait(0.01):
            for path in self.folder.glob("*.ask"):
                state = self.answer(UploadStep.model_validate_json(path.read_text()))
                path.unlink()
                path.with_suffix(".new").write_text(state.model_dump_json())
                path.with_suffix(".new").replace(path.with_suffix(".answer"))

    def close(self) -> None:
        self._over.set()
        self._thread.join(30)


@pytest.fixture
def hub(store: S3Store, tmp_path: Path) -> Iterator[Hub]:
    file = tmp_path / "update"
    file.write_bytes(os.urandom(5 * LEAF_BYTES + 1000))
    made = Hub(store, f"updates/{secrets.token_hex(6)}/run/north/task/digest", ref_of_file(file), tmp_path / "asked")
    yield made
    made.close()


async def test_an_upload_goes_on_after_its_process_was_killed_with_the_parts_that_the_store_has(
    hub: Hub, line: Line, tmp_path: Path
) -> None:
    """Three parts go at once, so three may be lost in the middle; no part goes twice that the store has answered."""
    file, notes = tmp_path / "update", tmp_path / "notes"
    line.hold_up = 4 * LEAF_BYTES
    running = process("up", hub.ref, str(file), str(hub.folder))
    killed_when(running, lambda: line.hold_up is not None and line.up >= line.hold_up and notes.exists())
    line.go_on()
    sent, parts = line.up, len(json.loads(notes.read_text())["step"]["etags"])
    assert parts >= 1
    transfer = HttpTransfer(patience=20)
    upload = FileUpload(transfer, file, hub.ref, notes=notes)
    assert await upload.run(hub.ask) == hub.key
    transfer.close()
    assert len(hub.steps[1].etags) == parts
    assert len({step.upload for step in hub.steps} - {""}) == 1
    assert line.up - sent < hub.ref.size - parts * LEAF_BYTES + SLACK
    assert not notes.exists()


async def test_an_upload_that_the_hub_gave_up_since_begins_anew(hub: Hub, tmp_path: Path) -> None:
    file, notes = tmp_path / "update", tmp_path / "notes"
    transfer, parts = HttpTransfer(patience=20), list[int]()

    class Breaks(HttpTransfer):
        def send_part(self, path: Path, part: PartLink, start: int, size: int) -> str:
            parts.append(part.number)
            if len(parts) > 3:
                raise HanseError(ErrorCode.UNAVAILABLE, "the line is cut")
            return super().send_part(path, part, start, size)

    with pytest.raises(HanseError, match="the line is cut"):
        await FileUpload(Breaks(), file, hub.ref, notes=notes).run(hub.ask)
    hub.store.abort_upload(hub.key, json.loads(notes.read_text())["step"]["upload"])
    upload = FileUpload(transfer, file, hub.ref, notes=notes)
    with pytest.raises(HanseError, check=lambda error: error.code is ErrorCode.UNAVAILABLE):
        await upload.run(hub.ask)
    assert await upload.run(hub.ask) == hub.key
    transfer.close()


async def test_notes_that_are_cut_or_of_another_file_are_passed_over(hub: Hub, tmp_path: Path) -> None:
    file, notes = tmp_path / "update", tmp_path / "notes"
    notes.write_bytes(b'{"digest":')
    transfer = HttpTransfer(patience=20)
    assert await FileUpload(transfer, file, hub.ref, notes=notes).run(hub.ask) == hub.key
    transfer.close()
