"""JSON that nobody meant: any value, and honest objects of which some values are others.

A library that draws the same, and makes what it finds small, takes ten times as long.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Any

from adversary.fuzz_targets import HOSTILE

_INTEGERS = (0, 1, -1, 2, 255, 2**15, 2**31 - 1, 2**31, -(2**31) - 1, 2**53 + 1, 2**63, -(2**63) - 1, 2**64, 10**40)
_FLOATS = (0.0, -0.0, 0.5, -1.5, 1e-9, 1e9, 5e-324, 2.2e-308, 1.7e308, float("inf"), float("-inf"), float("nan"))
_TEXTS = ("", " ", "a", "0", "null", "true", "nan", "-1", "1e999", "..", "/", "\x00", "\n", "é", "İ", "\u202e", "💣")
_SIGNS = "aZ09_-./:*>$ \"'\\\t\r\x00\x7f\x85éßİ\u0300\u200b\u202e\ufeff\uffff💣"


def seeds(many: int) -> Iterator[int]:
    """Others each time; a test that fails says which."""
    first = random.SystemRandom().getrandbits(60)
    yield from range(first, first + many)


def any_value(draw: random.Random, depth: int = 3) -> Any:
    """Any JSON, of few values within each other."""
    match draw.randrange(7 if depth else 5):
        case 0:
            return draw.choice((None, True, False))
        case 1:
            return draw.choice(_INTEGERS) if draw.random() < 0.5 else draw.randint(-(10**6), 10**6)
        case 2:
            return draw.choice(_FLOATS) if draw.random() < 0.5 else struct.unpack("<d", draw.randbytes(8))[0]
        case 3 | 4:
            return draw.choice(_TEXTS) if draw.random() < 0.5 else _text(draw, 20)
        case 5:
            return [any_value(draw, depth - 1) for _ in range(draw.randrange(5))]
        case _:
            return {_text(draw, 8): any_value(draw, depth - 1) for _ in range(draw.randrange(5))}


def changed(draw: random.Random, honest: dict[str, Any], names: Iterable[str] = ("more",)) -> str:
    """The text of an honest object of which one to three values are others, are gone, or are beside it.

    Args:
        names: of what may come beside it.
    """
    body, marks = deepcopy(honest), []
    for number in range(draw.randint(1, 3)):
        at: Any = body
        while True:
            beside = [name for name in names if name not in body] if at is body else ["more"] * isinstance(at, dict)
            there = sorted(at) if isinstance(at, dict) else list(range(len(at)))
            # As often beside it as among all that is there; a list that is empty has no place for another value.
            name = draw.choice(beside if beside and (not there or draw.random() < 0.3) else there or [0])
            inner = at.get(name) if isinstance(at, dict) else at[name] if at else None
            if isinstance(inner, dict | list) and inner and draw.random() < 0.5:
                at = inner
                continue
            break
        if isinstance(at, list) and not at:
            continue
        if draw.randrange(6) == 0:
            at.pop(name, None) if isinstance(at, dict) else at.pop(name)
        elif draw.random() < 0.5:
            at[name] = any_value(draw)
        else:
            at[name] = f"\x00{number}\x00"
            marks.append((json.dumps(at[name]), draw.choice(HOSTILE)))
    text = json.dumps(body)
    for mark, raw in marks:
        text = text.replace(mark, raw)
    return text


def _text(draw: random.Random, longest: int) -> str:
    return "".join(
        draw.choice(_SIGNS) if draw.random() < 0.7 else chr(draw.randrange(32, 0xD800))
        for _ in range(draw.randint(0, longest))
    )  # fmt: skip
