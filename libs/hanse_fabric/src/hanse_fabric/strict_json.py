"""JSON that a stranger wrote: read with bounds on size, values, depth and numbers, so that no text stops or fills its
reader. Every door reads through here: messages, file headers, HTTP bodies.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, NoReturn

from hanse_fabric.errors import ErrorCode, HanseError


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """What a text may hold.

    Attributes:
        size: bytes, after inflation.
        values: about how many values (commas and opened brackets count).
        depth: arrays and objects inside each other.
    """

    size: int
    values: int
    depth: int = 64


SMALL = JsonLimits(2 << 20, 100_000)
"""For what anybody may send."""

LARGE = JsonLimits(32 << 20, 2_000_000)
"""For what grows with the participants of a run or the entries of a model, and is written by services alone."""

_ESCAPE = b"\\u"


def parse_json(data: bytes, what: str, limits: JsonLimits = SMALL) -> Any:
    """What a text in JSON says.

    Args:
        data: UTF-8.
        what: it is, for errors.

    Raises:
        HanseError: TOO_LARGE beyond `limits`' size or values; INVALID_INPUT for what is no JSON in UTF-8, is nested
            deeper than `limits.depth`, has half a character (a lone surrogate), a number that is not finite, or an
            integer beyond 64 bits.
    """
    opened = check_size(data, what, limits)
    try:
        found = _DECODER.decode(data.decode())
        if opened > limits.depth and _deeper(found, limits.depth):
            raise RecursionError
        if _ESCAPE in data:
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"{what}: nested deeper than {limits.depth} arrays and objects"
        ) from None
    except UnicodeEncodeError:
        raise HanseError(ErrorCode.INVALID_INPUT, f"{what}: a text with half a character (a lone surrogate)") from None
    except ValueError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"{what}: not JSON: {error}") from None
    return found


def check_size(data: bytes, what: str, limits: JsonLimits) -> int:
    """How many arrays and objects a text opens, at most.

    Raises:
        HanseError: TOO_LARGE beyond the limits of size and values.
    """
    if len(data) > limits.size:
        raise HanseError(ErrorCode.TOO_LARGE, f"{what}: {len(data)} bytes, more than {limits.size}")
    opened = data.count(b"[") + data.count(b"{")
    if opened + data.count(b",") > limits.values:
        raise HanseError(ErrorCode.TOO_LARGE, f"{what}: more than {limits.values} values")
    return opened


def _deeper(found: Any, depth: int) -> bool:
    level = [found] if isinstance(found, dict | list) else []
    while level and depth:
        depth -= 1
        level = [
            value
            for each in level
            for value in (each.values() if isinstance(each, dict) else each)
            if isinstance(value, dict | list)
        ]
    return bool(level)


def _integer(text: str) -> int:
    if len(text) <= 20:
        value = int(text)
        if -(2**63) <= value < 2**64:
            return value
    raise ValueError(f"an integer of {len(text)} characters is beyond 64 bits")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is not a finite number")
    return value


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a finite number")


_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=_finite, parse_constant=_refuse)
