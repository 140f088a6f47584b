"""Which files this process has open."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def open_under(folder: Path) -> list[str]:
    """Those of a folder, in any order."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found.append(str(each.readlink()))
    return [path for path in found if path.startswith(str(folder))]
