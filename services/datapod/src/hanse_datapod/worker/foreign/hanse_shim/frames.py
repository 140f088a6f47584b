"""Frames between a worker and a foreign interpreter: what is said, as JSON, then its arrays' bytes.

A frame is four bytes of length (big-endian), a JSON object of that length, and the bytes of the arrays that its
`arrays` list by name, dtype and shape, one after the other. Nothing of it is ever executed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import IO, Any

import numpy as np

MAX_TEXT = 24 << 20
DTYPES = frozenset({"f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "b1"})
"""Of numpy, little-endian."""

Arrays = Mapping[str, np.ndarray]
Frame = tuple[dict[str, Any], dict[str, np.ndarray]]


def write(stream: IO[bytes], said: Mapping[str, Any], arrays: Arrays | None = None) -> None:
    """Write a frame.

    Raises:
        ValueError: for an array of another dtype, or a text that is too long.
    """
    listed, parts = [], []
    for name, array in (arrays or {}).items():
        kind = f"{array.dtype.kind}{array.dtype.itemsize}"
        if kind not in DTYPES:
            raise ValueError(f"array {name} is of dtype {array.dtype}, which does not travel: floats, integers do")
        listed.append([name, kind, list(array.shape)])
        parts.append(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes())
    text = json.dumps({**said, "arrays": listed}).encode()
    if len(text) > MAX_TEXT:
        raise ValueError(f"a frame's text has {len(text)} bytes, at most {MAX_TEXT} are allowed")
    stream.write(len(text).to_bytes(4, "big") + text)
    stream.writelines(parts)
    stream.flush()


def read(stream: IO[bytes], most: int) -> Frame | None:
    """The next frame of a blocking stream, its arrays to be changed by whoever reads; None at its end.

    Args:
        most: bytes of all arrays together.

    Raises:
        ValueError: for what is no frame, or holds more.
    """
    first = _exactly(stream, 4)
    if first is None:
        return None
    length = int.from_bytes(first, "big")
    if length > MAX_TEXT:
        raise ValueError(f"a length of {length} bytes: the pipe is out of step")
    text = _exactly(stream, length)
    if text is None:
        return None
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict) or not isinstance(said.get("arrays"), list):
        raise ValueError("no object in JSON with a list of arrays")
    arrays: dict[str, np.ndarray] = {}
    left = most
    for listed in said.pop("arrays"):
        name, dtype, shape = _checked(listed)
        size = dtype.itemsize * math.prod(shape)
        if name in arrays or size > left:
            raise ValueError(f"array {name[:80]}: twice in a frame, or {size} bytes where {left} are left")
        left -= size
        held = _exactly(stream, size)
        if held is None:
            return None
        arrays[name] = np.frombuffer(bytearray(held), dtype).reshape(shape)
    return said, arrays


def _checked(listed: object) -> tuple[str, np.dtype, tuple[int, ...]]:
    if not isinstance(listed, list) or len(listed) != 3:
        raise ValueError("an array that is not [name, dtype, shape]")
    name, kind, shape = listed
    if not isinstance(name, str) or kind not in DTYPES or not isinstance(shape, list) or len(shape) > 32:
        raise ValueError("an array that is not [name, dtype, shape]")
    if not all(type(size) is int and 0 <= size < 2**48 for size in shape):
        raise ValueError(f"array {name[:80]}: a shape of other than whole numbers")
    return name, np.dtype(f"<{kind}"), tuple(shape)


def _exactly(stream: IO[bytes], size: int) -> bytes | None:
    found = stream.read(size)
    return found if len(found) == size else None
