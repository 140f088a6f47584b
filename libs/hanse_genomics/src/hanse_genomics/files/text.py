"""Words as an array of bytes, so that they travel in tensor files: UTF-8, each ended by a line feed.

Joining and splitting run at the speed of memory, and no second array of offsets crosses; a word of a PLINK file never
has whitespace in it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_genomics.arrays import Array, Packed

_END = "\n"


def pack(words: Iterable[str]) -> Packed:
    """Words as uint8 (bytes,).

    Raises:
        HanseError: INVALID_INPUT when a word has a line feed in it.
    """
    listed = list(words)
    joined = _END.join(listed) + _END if listed else ""
    if joined.count(_END) != len(listed):
        raise HanseError(ErrorCode.INVALID_INPUT, "text: a word has a line feed in it, which ends a word here")
    return np.frombuffer(joined.encode(), dtype=np.uint8)


def unpack(array: Array) -> list[str]:
    """The words of `pack`.

    Raises:
        HanseError: INVALID_INPUT when it is not such an array.
    """
    if array.dtype != np.uint8 or array.ndim != 1:
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"text: {array.dtype} of shape {array.shape}, expected uint8 (bytes,)"
        )
    try:
        text = array.tobytes().decode()
    except UnicodeDecodeError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"text: byte {error.start} is not UTF-8") from None
    if text and not text.endswith(_END):
        raise HanseError(ErrorCode.INVALID_INPUT, "text: the last word does not end with a line feed: it is cut off")
    return text.split(_END)[:-1]
