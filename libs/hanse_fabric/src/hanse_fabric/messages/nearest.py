"""The key that was probably meant, where a form has none of the name that was given."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel


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
            for name, field in each.model_fields.items()
            if part in (name, field.alias)
            for found in _models(field.annotation)
        ]
        forms = below or forms  # a position in a list, or the tag of a union: what is below is of the same forms
    known = {field.alias or name for each in forms for name, field in each.model_fields.items()}
    found = difflib.get_close_matches(str(place[-1]), sorted(known), 1)
    return found[0] if found else None


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in an annotation: itself, of unions, lists and mappings."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) is Annotated:
        yield from _models(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType) or get_origin(annotation) is not None:
        for inner in get_args(annotation):
            yield from _models(inner)
