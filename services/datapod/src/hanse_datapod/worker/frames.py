"""Frames between agent and worker: four bytes of length (big-endian), then JSON. Loads next to nothing: the worker's
process reads its first frame before it goes into its sandbox."""

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
    return unpack(text)


def unpack(text: bytes) -> dict[str, Any]:
    """The body of a frame.

    Raises:
        HanseError: INTERNAL for what is no object in JSON.
    """
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise HanseError(ErrorCode.INTERNAL, f"worker frame: {len(text)} bytes that are no object in JSON")
    return body


def error_frame(error: HanseError) -> dict[str, Any]:
    """An error as it goes from process to process of a site, what was found in the data included."""
    return {
        "kind": "error", "code": error.code.code, "message": error.message, "hint": error.hint, "found": error.found,
    }  # fmt: skip


def error_of(frame: dict[str, Any]) -> HanseError:
    """The error of a frame; of a worker of a release that does not say what was found, too."""
    found = str(frame.get("found", ""))
    return HanseError(ErrorCode.of(frame["code"]), frame["message"], hint=frame["hint"], found=found)
