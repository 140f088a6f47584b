"""The key that was probably meant, where a form has none of the name that was given."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo


def nearest_key(form: object, place: Sequence[int | str]) -> str | None:
    """The key of `form` that is most like the last part of `place`; None where none is.

    Args:
        form: a model, or an annotation that has models in it.
        place: where the unknown key is, as pydantic tells it: keys, positions in lists, and tags of unions.
    """
    forms = list(_models(form))
    for part in place[:-1]:
        below = [
            found
            for each in forms
            for name, field in _fields(each)
            if part in (name, field.alias)
            for found in _models(field.annotation)
        ]
        # Else it is a tag, which says which of the forms is meant, or a position in a list.
        forms = below or [form for form in forms if part in _tags(form)] or forms
    return nearest_of(str(place[-1]), {field.alias or name for each in forms for name, field in _fields(each)})


def nearest_of(given: str, known: Iterable[str]) -> str | None:
    """The name of `known` that is most like `given`; None where none is."""
    found = difflib.get_close_matches(given, sorted(known), 1)
    return found[0] if found else None


def meant(given: str, known: Iterable[str]) -> str:
    """What is added to an error about an unknown name: which one was probably meant, or nothing."""
    nearest = nearest_of(given, known)
    return f", did you mean {nearest}?" if nearest else ""


def _fields(form: type[BaseModel]) -> Iterable[tuple[str, FieldInfo]]:
    return form.model_fields.items()


def _tags(form: type[BaseModel]) -> set[object]:
    """The values by which a union knows the form: those of fields that may have few texts alone."""
    return {
        value
        for _, field in _fields(form)
        if get_origin(field.annotation) is Literal
        for value in get_args(field.annotation)
    }


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in an annotation: itself, of unions, lists and mappings."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) is Annotated:
        yield from _models(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType) or get_origin(annotation) is not None:
        for inner in get_args(annotation):
            yield from _models(inner)
