"""An owner's upload that was cut, or whose program was killed, goes on behind what the store has."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from directory_transfer import DirectoryTransfer
from hanse.uploads import file_upload, model_file, send
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.objects import ObjectRef
from hanse_fabric.messages.uploads import PartLink, UploadState, UploadStep
from hanse_fabric.store import transfer as transfers
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.store.uploads import go_on
from hanse_fabric.tensors.digest import LEAF_BYTES, digest_bytes

MODEL = {"weight": np.random.default_rng(1).standard_normal(5 * LEAF_BYTES // 8)}
"""Six parts."""


class Killed(BaseException):
    """The program ends here."""


class Line(DirectoryTransfer):
    """Sends parts, and breaks at some."""

    def __init__(self, root: Path, breaks: dict[int, BaseException]) -> None:
        root.mkdir(parents=True, exist_ok=True)
        super().__init__(root)
        self.sent: list[int] = []
        self._breaks = breaks

    def send_part(self, path: Path, part: PartLink, start: int, size: int) -> str:
        if (broken := self._breaks.pop(part.number, None)) is not None:
            raise broken
        self.sent.append(part.number)
        return super().send_part(path, part, start, size)


async def uploaded(folder: Path, line: Line, monkeypatch: pytest.MonkeyPatch, to: str = "https://hub triage") -> str:
    """Upload the model as the SDK does; gives its digest."""
    monkeypatch.setattr(transfers, "HttpTransfer", lambda **_: line)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "user"))
    store = DirectoryStore(folder / "store")
    with model_file(MODEL) as (path, ref), file_upload(path, ref, None, to=to) as upload:

        async def ask(step: UploadStep) -> UploadState:
            return go_on(store, key_of(ref), ref, step, timedelta(minutes=1))

        await send(upload, ask)
        assert digest_bytes(store.get(key_of(ref), limit=ref.size))[0] == ref.digest
        return ref.digest


def key_of(ref: ObjectRef) -> str:
    return f"models/triage/{ref.digest}"


def notes(folder: Path) -> list[Path]:
    return [path for path in (folder / "user").rglob("*") if path.is_file()]


async def test_after_its_program_was_killed_an_upload_sends_no_part_that_was_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, again = Line(tmp_path / "store", {4: Killed()}), Line(tmp_path / "store", {})
    with pytest.raises(Killed):
        await uploaded(tmp_path, first, monkeypatch)
    (kept,) = notes(tmp_path)
    assert kept.parent.stat().st_mode & 0o077 == 0
    await uploaded(tmp_path, again, monkeypatch)
    assert set(first.sent) >= {1, 2, 3}
    assert set(again.sent).isdisjoint({1, 2, 3})
    assert 4 in again.sent
    assert not notes(tmp_path)


async def test_a_line_that_breaks_again_and_again_is_enough_as_long_as_each_time_something_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks: dict[int, BaseException] = {
        number: HanseError(ErrorCode.GONE, "the link has expired") for number in (2, 4, 6)
    }
    line = Line(tmp_path / "store", breaks)
    await uploaded(tmp_path, line, monkeypatch)
    assert sorted(set(line.sent)) == [1, 2, 3, 4, 5, 6]
    nothing: dict[int, BaseException] = {1: HanseError(ErrorCode.GONE, "the link has expired")}
    with pytest.raises(HanseError, match="has expired"):
        await uploaded(tmp_path / "other", Line(tmp_path / "other" / "store", nothing), monkeypatch)


async def test_what_was_noted_of_another_hub_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Killed):
        await uploaded(tmp_path, Line(tmp_path / "store", {4: Killed()}), monkeypatch)
    line = Line(tmp_path / "store", {})
    await uploaded(tmp_path, line, monkeypatch, to="https://other triage")
    assert sorted(line.sent) == [1, 2, 3, 4, 5, 6]
