"""Where a value stands that is wrong, as who wrote it knows it: by keys and positions alone."""

from __future__ import annotations

import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, Tag

_FORMS = re.compile(r"(?:function-\w+|literal)\[.*\]", re.DOTALL)
"""What pydantic calls some forms, and nobody a key."""


def place_of(form: object, told: Iterable[int | str]) -> tuple[int | str, ...]:
    """Keys and positions of a value, without what pydantic calls the forms that it may have.

    Args:
        form: a model, or an annotation that has models in it; None: not known. Then only what nobody calls a key
            is left out.
        told: as pydantic tells it.
    """
    return _walked(form, told)[0]


def keys_at(form: object, told: Iterable[int | str]) -> set[str]:
    """The keys that a section may have which stands there; see `place_of`."""
    _, forms = _walked(form, told)
    models = [_bare(each) for below in forms for each in _choices(below) or [_given(below)]]
    return {
        field.alias or name
        for model in models
        if isinstance(model, type) and issubclass(model, BaseModel)
        for name, field in model.model_fields.items()
    }


def _walked(form: object, told: Iterable[int | str]) -> tuple[tuple[int | str, ...], list[Any]]:
    """The place, and the forms that a value may have there."""
    place, forms = list[int | str](), [form]
    for part in told:
        choices = [found for each in forms for found in _choices(each)]
        if choices:  # between which pydantic says which one it has tried
            forms = [each for each in choices if part in _names(each)] or choices
            continue
        forms = [below for each in forms for below in _below(_given(each), part)]
        if forms or not _FORMS.fullmatch(str(part)):
            place.append(part)
    return tuple(place), forms


def _choices(form: Any) -> Sequence[Any]:
    """The forms of a union of several; of another form none. Whether it may be left out is no choice."""
    found = _inner(form)
    return found if len(found) > 1 else ()


def _given(form: Any) -> Any:
    """The form of a value that may be left out, where it is there."""
    found = _inner(form)
    return _given(found[0]) if found else _bare(form)


def _inner(form: Any) -> Sequence[Any]:
    form = _bare(form)
    if get_origin(form) not in (Union, types.UnionType):
        return ()
    found = [each for each in get_args(form) if each is not type(None)]
    return found if len(found) > 1 else _inner(found[0]) or found


def _names(form: Any) -> Iterator[object]:
    """By what pydantic tells one form of a union from the others: its name, its tag, or the values of its tag."""
    if get_origin(form) is Annotated:
        yield from (note.tag for note in get_args(form)[1:] if isinstance(note, Tag))
    form = _bare(form)
    if isinstance(form, type):
        yield form.__name__
    if isinstance(form, type) and issubclass(form, BaseModel):
        for field in form.model_fields.values():
            if get_origin(field.annotation) is Literal:
                yield from get_args(field.annotation)


def _below(form: Any, part: int | str) -> Iterator[Any]:
    """The forms of what stands at a key or a position of this one."""
    if isinstance(form, type) and issubclass(form, BaseModel):
        yield from (field.annotation for name, field in form.model_fields.items() if part in (name, field.alias))
        return
    origin, inner = get_origin(form), get_args(form)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        yield inner[1]
    elif isinstance(origin, type) and issubclass(origin, Iterable) and isinstance(part, int):
        yield from (each for each in inner if each is not Ellipsis)


def _bare(form: Any) -> Any:
    while get_origin(form) is Annotated:
        form = get_args(form)[0]
    return form
