"""The header of the model that an owner begins with, read without numpy: which entries it has."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from hanse_fabric.errors import HanseError, invalid
from hanse_fabric.strict_json import parse_json
from hanse_fabric.tensors.headers import HEADER_LIMITS, MAX_HEADER_BYTES, shape_of
from hanse_learning.config.first_model import Form

_BYTES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "I16": 2, "U16": 2} | {
    "I8": 1, "U8": 1, "BOOL": 1,
}  # fmt: skip


def read_entries(size: int, read: Callable[[int, int], bytes]) -> dict[str, Form]:
    """The entries of a safetensors file by name.

    Args:
        size: of the file, in bytes.
        read: gives the bytes of it at an offset, of a length.

    Raises:
        HanseError: INVALID_INPUT where it is none; what `read` raises.
    """
    if size < 8:
        raise _no_model(f"{size} bytes")
    length = int.from_bytes(read(0, 8), "little")
    if not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):
        raise _no_model(f"a header of {length} bytes in a file of {size}")
    return _parsed(read(8, length), size - 8 - length)


def _parsed(header: bytes, data: int) -> dict[str, Form]:
    """The entries of a safetensors header.

    Args:
        data: bytes that follow it.

    Raises:
        HanseError: INVALID_INPUT.
    """
    try:
        body = parse_json(header, "job.initial_model", HEADER_LIMITS)
        body.pop("__metadata__", None)
        entries = {name: (str(item["dtype"]), shape_of(item["shape"])) for name, item in body.items()}
        described = sum(_BYTES[dtype] * prod(shape) for dtype, shape in entries.values())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _no_model(f"a malformed header ({error})") from None
    if described != data:
        raise _no_model(f"{data} bytes of data, where its header describes {described}")
    if not entries:
        raise _no_model("no entry")
    return entries


def _no_model(found: str) -> HanseError:
    return invalid(
        "job.initial_model", found, "a safetensors file with the model's entries",
        hint="write it with hanse_fabric.tensors, or upload arrays by project.upload_model",
    )  # fmt: skip
