"""The folder of a demonstration, which is its own."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from hanse_fabric.errors import ErrorCode, HanseError


def own_folder(chosen: Path | None, kind: str) -> Path:
    """`chosen`, or a new one in .hanse/`kind`.

    Raises:
        HanseError: CONFLICT where something is in it, such as the hub of an earlier demonstration.
    """
    folder = chosen or Path(".hanse") / kind / datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise HanseError(
            ErrorCode.CONFLICT, f"--dir: {folder} is there already, and not empty",
            hint="name a folder that is not there yet",
        )  # fmt: skip
    return folder.absolute()
