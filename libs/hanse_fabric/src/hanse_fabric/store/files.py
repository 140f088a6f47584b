"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from hanse_fabric.errors import ErrorCode, HanseError

READ_BYTES = 256 << 10
"""Bytes that are read, sent or received at a time."""


@contextmanager
def whole_file(path: Path, *, replace: bool = True, sync: bool = True, over: Path | None = None) -> Iterator[BinaryIO]:
    """A file open for writing that gets its name only when the block ends without an error.

    Args:
        replace: whether a file that exists is replaced.
        sync: whether it is flushed to the disk first. Not needed for what can be fetched again, by its digest.
        over: an old file that is used up, where there is one; `path` itself, or another. Its pages are in memory, and
            writing to them is many times faster than to new ones; nobody else may have it open.

    Raises:
        HanseError: CONFLICT when the file exists and is not to be replaced; NO_SPACE when the disk is full.
    """
    partial = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        recycled = over is not None and over.exists()
        if over is not None and recycled:
            over.replace(partial)
        with partial.open("r+b" if recycled else "w+b") as file:
            yield file
            file.flush()
            if recycled:
                file.truncate()
            if sync:
                os.fsync(file.fileno())
        if replace:
            partial.replace(path)
        else:
            # A hard link, unlike a rename, never takes the place of what is there.
            os.link(partial, path)
    except FileExistsError:
        raise HanseError(ErrorCode.CONFLICT, f"{path.name}: exists already") from None
    except OSError as error:
        raise disk_error(path, error) from None
    finally:
        partial.unlink(missing_ok=True)


def disk_error(path: Path, error: OSError) -> HanseError:
    """What an error of the file system means to a person."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return HanseError(ErrorCode.NO_SPACE, f"{path}: the disk is full", hint="free space on it and try again")
    if isinstance(error, FileNotFoundError):
        return HanseError(ErrorCode.NOT_FOUND, f"{path}: there is no such file")
    return HanseError(ErrorCode.INVALID_INPUT, f"{path}: {error.strerror or error}")
