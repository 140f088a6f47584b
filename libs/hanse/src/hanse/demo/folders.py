"""The folder of a demonstration, which is its own."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from itertools import chain, count
from pathlib import Path

from hanse_fabric.errors import ErrorCode, HanseError


def own_folder(chosen: Path | None, kind: str) -> Path:
    """`chosen`, or a new one in .hanse/`kind`, which is made at once: another demonstration may begin in this second.

    Raises:
        HanseError: CONFLICT where something is in the chosen one, such as the hub of an earlier demonstration.
    """
    if chosen is None:
        return _new_folder(Path(".hanse") / kind / datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")).absolute()
    if chosen.exists() and (not chosen.is_dir() or any(chosen.iterdir())):
        raise HanseError(
            ErrorCode.CONFLICT, f"--dir: {chosen} is there already, and not empty",
            hint="name a folder that is not there yet",
        )  # fmt: skip
    return chosen.absolute()


def _new_folder(first: Path) -> Path:
    """`first`, or the first of `first`-2, `first`-3, ... that is not there yet."""
    first.parent.mkdir(parents=True, exist_ok=True)
    for folder in chain([first], (first.with_name(f"{first.name}-{number}") for number in count(2))):
        with suppress(FileExistsError):
            folder.mkdir()
            break
    return folder
