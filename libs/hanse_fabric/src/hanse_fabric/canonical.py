"""One text for one meaning: what fingerprints and digests of requests are made of.

Messages count by their fields, objects by their digests; fields that say nothing (None) are left out, so that a field
which a later release adds changes no text of before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Any

from pydantic import BaseModel

from hanse_fabric.messages.objects import ObjectRef


def canonical(value: Any) -> bytes:
    """JSON with sorted keys and no spaces, the same on every machine.

    Raises:
        TypeError: for values of another kind than JSON's, messages, objects, sets, bytes and times.
        ValueError: for numbers that are not finite.
    """
    text = json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


_AS_THEY_ARE = frozenset({str, int, float, bool, type(None)})


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is dict:  # here and below most values end, sooner than by the looks at all that they might be
        return {str(name): _plain(field) for name, field in value.items()}
    if kind is tuple or kind is list:
        return [_plain(each) for each in value]
    match value:
        case ObjectRef():
            return value.digest
        case BaseModel():
            fields = ((name, getattr(value, name)) for name in type(value).__pydantic_fields__)
            return {name: _plain(field) for name, field in fields if field is not None}
        case Enum():
            return value.value
        case Mapping():
            return {str(name): _plain(field) for name, field in value.items()}
        case frozenset() | set():
            return sorted(_plain(each) for each in value)
        case list() | tuple():
            return [_plain(each) for each in value]
        case bytes():
            return value.hex()
        case datetime():
            return value.isoformat()
        case None | bool() | int() | float() | str():
            return value
        case _:
            raise TypeError(f"{type(value).__name__} has no text: {value!r}")
