"""64-bit words as text: deflated, for counts are mostly zeros, in base64."""

from __future__ import annotations

import base64
import binascii
import zlib

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import invalid


def pack_words(words: NDArray[np.uint64]) -> str:
    """Words (n,) as text; the same words give the same text."""
    return base64.b64encode(zlib.compress(words.astype("<u8").tobytes(), 6)).decode()


def unpack_words(text: str, count: int, *, field: str) -> NDArray[np.uint64]:
    """What `pack_words` made of so many words.

    Raises:
        HanseError: INVALID_INPUT naming the field, for anything else; nothing larger is inflated.
    """
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(base64.b64decode(text, validate=True), count * 8 + 1)
    except (ValueError, binascii.Error, zlib.error):
        raise invalid(field, "text", f"{count} words of 64 bits, deflated, in base64") from None
    if len(data) != count * 8 or not inflater.eof:
        raise invalid(field, f"{len(data)} bytes", f"{count} words of 64 bits, deflated, in base64")
    return np.frombuffer(data, "<u8").astype(np.uint64)
