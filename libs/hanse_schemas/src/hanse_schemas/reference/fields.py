"""What may be given for a key, by its type and bounds, and a value that is an example of it."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from hanse_fabric.names import Digest, Slug

_NAMED: tuple[tuple[object, str], ...] = (
    (Digest, "SHA-256 in lower-case hexadecimal"),
    (Slug, "name of lower-case letters, digits and inner hyphens"),
)
_PLAIN = {bool: "true or false", int: "whole number", float: "number", str: "text", Path: "path"}


def hint(form: type[BaseModel], key: str) -> Any:
    """The type of a key with all that its field adds to it: what a `TypeAdapter` takes."""
    declared = get_type_hints(form, include_extras=True)[key]
    added = [each for each in form.model_fields[key].metadata if each not in _limits(declared)]
    return Annotated[(declared, *added)] if added else declared


def models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The forms in a type: itself, those of unions, of lists and of mappings."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from models(inner)


def allowed(annotation: Any, limits: Sequence[Any] = ()) -> str:
    """What may be given, in words.

    Args:
        limits: the bounds and patterns that stand around the type.
    """
    for known, words in _NAMED:
        if annotation == known:
            return words
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return allowed(inner[0], (*limits, *_limits(annotation)))
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(allowed(each, limits) for each in inner if each is not types.NoneType))
    if origin is Literal:
        return ", ".join(f"`{each}`" for each in inner)
    if origin is tuple:
        return f"list{_length(limits)}: {allowed(inner[0])}"
    if annotation is dict or (origin is not None and issubclass(origin, Mapping)):
        values = allowed(inner[1]) if inner and inner[1] is not Any else ""
        return f"mapping{_length(limits)}" + (f" of names to: {values}" if values else "")
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ", ".join(f"`{each.value}`" for each in annotation)
    if annotation is bytes:
        return f"base64{_length(limits)} bytes"
    return _PLAIN[annotation] + (_range(limits) if annotation in (int, float) else _text(limits))


def example(annotation: Any, default: object = None, limits: Sequence[Any] = ()) -> Any:
    """A value that may be given, another than the default; None where none follows from the type."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return example(inner[0], default, (*limits, *_limits(annotation)))
    if origin in (Union, types.UnionType):
        return next((made for each in inner if (made := example(each, default, limits)) is not None), None)
    if origin is Literal:
        return next((each for each in inner if each != default), inner[0])
    if origin is tuple:
        made = example(inner[0])
        return None if made is None else [made] * max(1, _limit(limits, "min_length") or 1)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return next(each.value for each in annotation if each != default)
    if annotation is bool:
        return not default
    if annotation in (int, float):
        return _number(annotation, default, limits)
    return None


def _number(kind: type, default: object, limits: Sequence[Any]) -> Any:
    most = _limit(limits, "le", "lt")
    least = _limit(limits, "ge", "gt")
    given = default if isinstance(default, int | float) and not isinstance(default, bool) else None
    tried = [2 * given, given / 2] if given else []
    tried += [10, 3, 2, 1, 0.5, 0.1, least or 0, most or 0]
    for each in tried:
        value = int(each) if kind is int else each
        if (kind is float or value == each) and value != default and _within(value, limits):
            return value
    return None


def _within(value: float, limits: Sequence[Any]) -> bool:
    bounds = {name: _limit(limits, name) for name in ("ge", "gt", "le", "lt")}
    return (
        (bounds["ge"] is None or value >= bounds["ge"])
        and (bounds["gt"] is None or value > bounds["gt"])
        and (bounds["le"] is None or value <= bounds["le"])
        and (bounds["lt"] is None or value < bounds["lt"])
    )


def _limits(annotation: Any) -> list[Any]:
    """What stands around the type in `Annotated`, out of pydantic's fields."""
    found: list[Any] = []
    if get_origin(annotation) is Annotated:
        for each in annotation.__metadata__:
            found += each.metadata if isinstance(each, FieldInfo) else [each]
    return found


def _limit(limits: Sequence[Any], *names: str) -> Any:
    return next((found for each in limits for name in names if (found := getattr(each, name, None)) is not None), None)


def _range(limits: Sequence[Any]) -> str:
    words = (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below"))
    told = [f"{word} {_limit(limits, name):,}" for name, word in words if _limit(limits, name) is not None]
    return f", {', '.join(told)}" if told else ""


def _text(limits: Sequence[Any]) -> str:
    pattern = _limit(limits, "pattern")
    return _length(limits) + (f" that fits `{pattern}`" if pattern else "")


def _length(limits: Sequence[Any]) -> str:
    least, most = _limit(limits, "min_length"), _limit(limits, "max_length")
    if least is None and most is None:
        return ""
    if least == most:
        return f" of {least:,}"
    return f" of {least or 0:,} to {most:,}" if most is not None else f" of {least:,} or more"
