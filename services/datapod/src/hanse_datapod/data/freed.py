"""Memory that was used to read data, and is free again."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress


def give_back() -> None:
    """Give free memory back to the system.

    Arrow and the C library keep a hundred MiB for the next file. A task would have to do without them, for they count
    as used where its memory is limited.
    """
    if (arrow := sys.modules.get("pyarrow")) is not None:
        arrow.default_memory_pool().release_unused()
    with suppress(AttributeError, OSError):  # a C library that is not GNU's has no such function
        ctypes.CDLL(None).malloc_trim(0)
