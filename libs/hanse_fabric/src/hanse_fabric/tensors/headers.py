"""The JSON in the header of a safetensors file, as a stranger may have written it. Needs no numpy."""

from __future__ import annotations

from hanse_fabric.strict_json import JsonLimits

MAX_HEADER_BYTES = 16 << 20
HEADER_LIMITS = JsonLimits(MAX_HEADER_BYTES, 2_000_000, depth=8)
_MOST_AXES = 32
_MOST_ELEMENTS = 2**53


def shape_of(given: object) -> tuple[int, ...]:
    """An entry's shape.

    Raises:
        ValueError: for what is no list of whole numbers, has more axes than arrays may have, a negative length, or
            more elements than any file holds.
    """
    if not isinstance(given, list) or len(given) > _MOST_AXES:
        raise ValueError(f"a shape is a list of {_MOST_AXES} lengths at most")
    elements = 1
    for length in given:
        if type(length) is not int or not 0 <= length <= _MOST_ELEMENTS:
            raise ValueError(f"{str(length)[:40]} is no length of an axis")
        elements *= max(length, 1)
        if elements > _MOST_ELEMENTS:
            raise ValueError(f"a shape of more than {_MOST_ELEMENTS} elements")
    return tuple(given)
