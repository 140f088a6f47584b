"""Keys of objects: only those that every store accepts, and none that leads to a place outside of it."""

from __future__ import annotations

import re

from hanse_fabric.errors import invalid

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,511}\Z")


def check_key(key: str) -> str:
    """The key itself.

    Raises:
        HanseError: INVALID_INPUT when it is not an `ObjectKey`, or has an empty, `.` or `..` segment.
    """
    if not _KEY.match(key) or {"", ".", ".."} & set(key.split("/")):
        raise invalid("key", key, "letters, digits and ._- in segments between slashes, at most 512 characters")
    return key
