"""Writing that survives a power cut, and one process at a time in a folder.

What `write_durably` and `sync` have returned from is on the disk. A full disk is NO_SPACE, never a half-written file.
"""

from __future__ import annotations

import errno
import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hanse_fabric.errors import ErrorCode, HanseError, unfit

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def space_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's "no space left" into NO_SPACE; other errors pass. `path` may be a site's, so it is
    for who may see the site's files (`found`)."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise no_space(path) from error
        raise


def no_space(path: Path) -> HanseError:
    """The disk of `path` is full."""
    return unfit("the disk is full", str(path), code=ErrorCode.NO_SPACE, hint="free space on the site's volume")


def sync(descriptor: int) -> None:
    """Wait until what was written to `descriptor` is on the disk."""
    os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Wait until names made, renamed or removed in `folder` are on the disk, where the system can wait for that."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, data: bytes | str, *, mode: int = 0o600) -> None:
    """Replace `path` by `data`: readers, and a restart at any moment, see all of the old or all of the new.

    Args:
        data: text is written as UTF-8.

    Raises:
        HanseError: NO_SPACE; nothing half-written stays.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with space_errors(path):
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
            try:
                write_all(descriptor, data.encode() if isinstance(data, str) else data)
                sync(descriptor)
            finally:
                os.close(descriptor)
            temporary.replace(path)
            sync_folder(path.parent)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`, which `os.write` alone does not promise."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def locks() -> Any:
    """The module `fcntl`.

    Raises:
        HanseError: UNAVAILABLE on a system without it: clients work there, datapods and hubs do not.
    """
    try:
        return importlib.import_module("fcntl")
    except ImportError:
        raise HanseError(
            ErrorCode.UNAVAILABLE, "fcntl: this system has no locks of files, which a datapod and a hub need",
            hint="run these on Linux; the SDK, the command line and hanse.join work here",
        ) from None  # fmt: skip


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Whether this process has the open file to itself now; it keeps it until it closes it, or ends in any way.

    Args:
        shared: or with others who have it so.

    Raises:
        HanseError: UNAVAILABLE, as `locks`.
    """
    fcntl = locks()
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def sole_owner(folder: Path) -> Iterator[None]:
    """Hold `folder` for this process.

    Raises:
        HanseError: LOCKED when another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not try_lock(descriptor):
            raise HanseError(
                ErrorCode.LOCKED,
                f"{folder}: another process works with this folder",
                hint="stop it, or give this one another --home",
            )
        yield
    finally:
        os.close(descriptor)
