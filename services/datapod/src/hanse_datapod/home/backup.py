"""A backup of a home: one archive, of one moment, for its owner alone."""

from __future__ import annotations

import os
import tarfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from hanse_datapod.home.folders import PAIRWISE
from hanse_datapod.home.left import left
from hanse_datapod.home.now import runs
from hanse_fabric.durable import sole_owner, space_errors, sync, sync_folder
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_site import load_identity

LEFT_OUT = (PAIRWISE, "lock")
"""Secrets of sums under way, which a restored home erases before anything else: a copy would be one more to be stolen.
And the sign that somebody works with the home."""


@dataclass(frozen=True, slots=True)
class BackedUp:
    """What was written.

    Attributes:
        files: how many are in the archive, folders not counted.
        size: of the archive, in bytes.
        elsewhere: links in the home, whose files are not in the archive.
    """

    file: Path
    files: int
    size: int
    elsewhere: list[str]


def back_up(home: Path, file: Path) -> BackedUp:
    """Write an archive (tar, gzip) of a home that nobody works with meanwhile. Blocks.

    The archive has the name of the home's folder in it, and is there whole or not at all.

    Raises:
        HanseError: NOT_FOUND where the home is none; LOCKED while a datapod runs in it; INVALID_INPUT for a place where
            no archive can be; CONFLICT where there is a file; NO_SPACE.
    """
    if load_identity(home) is None and left(home) is None:
        raise HanseError(ErrorCode.NOT_FOUND, f"{home}: this site has not joined a project")
    _check_place(home, file)
    if runs(home):
        raise HanseError(
            ErrorCode.LOCKED, f"{home}: its datapod runs, and its files change while they are copied",
            hint="stop it, back up, and start it again; `pause` lets it end its work before",
        )  # fmt: skip
    with sole_owner(home):
        return _write(home, file)


def _check_place(home: Path, file: Path) -> None:
    if not file.parent.is_dir():
        raise invalid("FILE", str(file), f"a file in a folder that is there: {file.parent} is none")
    if (file.parent.resolve() / file.name).is_relative_to(home.resolve()):
        raise invalid("FILE", str(file), "a file outside of the home, whose loss it is to make good")
    if os.path.lexists(file):
        raise HanseError(ErrorCode.CONFLICT, f"{file}: it is there already", hint="name a new file for each backup")


def _write(home: Path, file: Path) -> BackedUp:
    partial = file.with_name(f".{file.name}.{os.getpid()}.new")
    files, elsewhere, top = 0, list[str](), home.resolve().name

    def keep(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        nonlocal files
        inside = Path(member.name).relative_to(top)
        if inside.parts and inside.parts[0] in LEFT_OUT:
            return None
        if member.issym():
            elsewhere.append(f"{inside} -> {member.linkname}")
        files += not member.isdir()
        return member

    try:
        with space_errors(file), _new(partial) as raw:
            with tarfile.open(fileobj=raw, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
                archive.add(home.resolve(), arcname=top, filter=keep)
            raw.flush()
            sync(raw.fileno())
        partial.replace(file)
        sync_folder(file.parent)
    finally:
        with suppress(FileNotFoundError):
            partial.unlink()
    return BackedUp(file, files, file.stat().st_size, elsewhere)


def _new(path: Path) -> BinaryIO:
    """A file for this user alone, whatever the umask; never one that somebody has put there."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb")
