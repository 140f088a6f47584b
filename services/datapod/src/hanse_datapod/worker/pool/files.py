"""The shared folder's files: each whole or absent, owner-only, JSON of limited size.

Links are refused: site code can write there, and a link could lead the datapod to files that are not the code's."""

from __future__ import annotations

import json
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

from hanse_datapod.worker.frames import MAX_FRAME, unpack
from hanse_fabric import durable
from hanse_fabric.errors import ErrorCode, HanseError

VERSION = 2
"""Of the requests' form: a pool's worker of another release says so."""


class PoolFolder:
    """The folder of one pool. Its methods block."""

    def __init__(self, folder: Path, name: str) -> None:
        self.root = folder / name
        self.requests, self.taken = self.root / "requests", self.root / "taken"
        self.work, self.workers = self.root / "work", self.root / "workers"

    def make(self) -> None:
        """Make what is not there yet, owner-only."""
        for each in (self.root, self.requests, self.taken, self.work, self.workers):
            each.mkdir(parents=True, exist_ok=True, mode=0o700)

    def taken_by(self, request: str) -> str | None:
        """The worker that has taken a request; None: nobody."""
        for path in self.taken.glob(f"{request}@*.json"):
            return path.stem.partition("@")[2]
        return None

    def forget(self, request: str) -> None:
        """Remove all of a request: whoever works on it stops."""
        for path in (self.requests / f"{request}.json", *self.taken.glob(f"{request}@*.json")):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.work / request, ignore_errors=True)

    def clear(self) -> None:
        """Remove what an agent before has left: nobody waits for it."""
        for folder in (self.requests, self.taken, self.work):
            for path in folder.glob("*"):
                self.forget(path.name.partition("@")[0].removesuffix(".json"))


def write_json(path: Path, body: dict[str, Any]) -> None:
    """Put a file there as a whole.

    Raises:
        HanseError: NO_SPACE, TOO_LARGE.
        OSError: FileNotFoundError where its folder is gone.
    """
    data = json.dumps(body).encode()
    if len(data) > MAX_FRAME:
        raise HanseError(ErrorCode.TOO_LARGE, f"{path.name}: {len(data)} bytes, at most {MAX_FRAME} are allowed")
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with durable.space_errors(path):
            partial.unlink(missing_ok=True)
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                durable.write_all(descriptor, data)
            finally:
                os.close(descriptor)
            partial.replace(path)
    finally:
        with suppress(FileNotFoundError):
            partial.unlink()


def read_json(path: Path) -> dict[str, Any] | None:
    """The body of a file; None where there is none."""
    try:
        with open(path, "rb", opener=_no_link) as file:
            data = file.read(MAX_FRAME + 1)
    except FileNotFoundError:
        return None
    if len(data) > MAX_FRAME:
        raise HanseError(ErrorCode.TOO_LARGE, f"{path.name}: more than {MAX_FRAME} bytes")
    return unpack(data)


def hand_over(source: Path, target: Path) -> None:
    """Have a file at `target`, too: the same one where both folders are on one disk, else a copy."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another disk, or a file system without links
        with durable.space_errors(target):
            shutil.copyfile(source, target, follow_symlinks=False)
            target.chmod(0o600)


def take_over(source: Path, target: Path) -> None:
    """Move a file to `target`; it is on the disk when this returns, where it had to be copied.

    Raises:
        HanseError: TAMPERED for a link; NO_SPACE.
    """
    try:
        source.replace(target)
        if not _is_file(target):  # looked at where nobody else can change it
            target.unlink()
            raise _no_file(source)
        return
    except OSError:  # another disk
        partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        if not _is_file(source):
            raise _no_file(source)
        with (
            durable.space_errors(target),
            open(source, "rb", opener=_no_link) as read,
            partial.open("wb") as written,
        ):
            partial.chmod(0o600)
            shutil.copyfileobj(read, written, 1 << 20)
            written.flush()
            durable.sync(written.fileno())
        partial.replace(target)
    finally:
        with suppress(FileNotFoundError):
            partial.unlink()


def folder_itself(folder: Path) -> Path:
    """The folder, if it is no link to one (TAMPERED)."""
    if folder.is_symlink():
        raise _no_file(folder)
    return folder


def _is_file(path: Path) -> bool:
    """Whether it is a file itself: a link would have the datapod read what the worker may not, a pipe have it wait."""
    return stat.S_ISREG(path.lstat().st_mode)


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW)


def _no_file(path: Path) -> HanseError:
    return HanseError(
        ErrorCode.TAMPERED, f"worker: {path.name} is a link or no file, a file of the worker's own was expected",
        hint="what site code runs in the site's workers?",
    )  # fmt: skip
