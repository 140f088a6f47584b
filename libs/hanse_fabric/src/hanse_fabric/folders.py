"""Folders that people name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeVar

from hanse_fabric.errors import invalid

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:", re.IGNORECASE)

P = TypeVar("P", str, Path)


def no_address(path: P, field: str) -> P:
    """The path itself, unless it looks like an address: `http://host` would become the folders `http:` and `host` below
    the current folder, and keys would be written there.

    Args:
        field: what an error calls it.

    Raises:
        HanseError: INVALID_INPUT.
    """
    parts = Path(path).parts
    if parts and _SCHEME.fullmatch(parts[0]):
        raise invalid(field, str(path), "a folder or file, but an address")
    return path
