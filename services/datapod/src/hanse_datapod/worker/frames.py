"""Frames between agent and worker: four bytes of length (big-endian), then JSON. Loads neither torch nor numpy."""

from __future__ import annotations

import json
from typing import Any, BinaryIO

from hanse_fabric.errors import ErrorCode, HanseError

MAX_FRAME = 16 << 20


def pack(body: dict[str, Any]) -> bytes:
    """A frame's bytes.

    Raises:
        HanseError: TOO_LARGE above MAX_FRAME.
    """
    text = json.dumps(body).encode()
    if len(text) > MAX_FRAME:
        raise HanseError(ErrorCode.TOO_LARGE, f"worker frame: {len(text)} bytes, at most {MAX_FRAME} are allowed")
    return len(text).to_bytes(4, "big") + text


def length_of(first: bytes) -> int:
    """A frame's length from its first four bytes.

    Raises:
        HanseError: INTERNAL where it is impossible, for then something else wrote into the pipe.
    """
    length = int.from_bytes(first, "big")
    if length > MAX_FRAME:
        raise HanseError(ErrorCode.INTERNAL, f"worker frame: a length of {length} bytes, the pipe is out of step")
    return length


def read_frame(stream: BinaryIO) -> dict[str, Any] | None:
    """The next frame of a blocking stream; None at its end."""
    first = stream.read(4)
    if len(first) < 4:
        return None
    length = length_of(first)
    text = stream.read(length)
    if len(text) < length:
        return None
    body: dict[str, Any] = json.loads(text)
    return body
