"""Bytes of a frame that are read from front to back, and end where they should."""

from __future__ import annotations

from typing import Any

import numpy as np

from hanse_fabric.errors import ErrorCode, HanseError


class BytesIn:
    """A frame's bytes.

    Args:
        data: all of them.
        what: names the frame in messages.
    """

    def __init__(self, data: bytes | memoryview, what: str = "frame") -> None:
        self._data, self._at, self._what = memoryview(data), 0, what

    def array(self, dtype: str, count: int) -> np.ndarray[Any, Any]:
        """The next `count` elements, read-only.

        Raises:
            HanseError: INVALID_INPUT where fewer are left.
        """
        size = np.dtype(dtype).itemsize * count
        if self._at + size > len(self._data):
            raise self.bad(f"ends at byte {len(self._data)}, {self._at + size} are needed")
        found = np.frombuffer(self._data[self._at : self._at + size], dtype)
        self._at += size
        return found

    def number(self, dtype: str) -> int:
        """The next number."""
        return int(self.array(dtype, 1)[0])

    def end(self) -> None:
        """Raises HanseError INVALID_INPUT where bytes are left."""
        if self._at != len(self._data):
            raise self.bad(f"has {len(self._data) - self._at} bytes too many")

    def bad(self, why: str) -> HanseError:
        """An error that names the frame."""
        return HanseError(ErrorCode.INVALID_INPUT, f"encoded update: {self._what} {why}")
