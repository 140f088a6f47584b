"""Of which arrays a tensor file consists, as people read it. Loads no numpy."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import BinaryIO

from hanse_fabric.errors import HanseError
from hanse_fabric.strict_json import parse_json
from hanse_fabric.tensors.headers import HEADER_LIMITS, MAX_HEADER_BYTES
from hanse_fabric.tensors.headers import shape_of as checked

_NAMED = 3
_LONGEST = 60


def shape_of(content: bytes | Path) -> str | None:
    """The number of arrays and of numbers in them, and the first arrays by name, such as `2 arrays, 31 numbers: bias 1,
    weight 1×30`; None where it is no tensor file.

    Args:
        content: the file's bytes, or where it lies.
    """
    header: object = None
    try:
        if isinstance(content, Path):
            with content.open("rb") as file:
                header = _header(file)
        elif len(content) >= 8:
            (length,) = struct.unpack("<Q", content[:8])
            header = parse_json(content[8 : 8 + length], "header", HEADER_LIMITS)
        if not isinstance(header, dict):
            return None
        arrays = {name: checked(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}
    except (OSError, HanseError, ValueError, KeyError, TypeError):
        return None
    total = sum(math.prod(shape) for shape in arrays.values())
    named = [f"{name[:_LONGEST]} {'×'.join(map(str, shape)) or '1'}" for name, shape in list(arrays.items())[:_NAMED]]
    more = ["..."] if len(arrays) > _NAMED else []
    counted = f"{len(arrays)} array{'s' * (len(arrays) != 1)}, {total:,} number{'s' * (total != 1)}"
    return f"{counted}: {', '.join(named + more)}" if named else counted


def _header(file: BinaryIO) -> object:
    (length,) = struct.unpack("<Q", file.read(8).ljust(8, b"\0"))
    return None if length > MAX_HEADER_BYTES else parse_json(file.read(length), "header", HEADER_LIMITS)
