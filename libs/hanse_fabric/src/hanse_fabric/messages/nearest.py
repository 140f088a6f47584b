"""The key that was probably meant, where a form has none of the name that was given."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from hanse_fabric.messages.places import keys_at


def nearest_key(form: object, place: Sequence[int | str]) -> str | None:
    """The key of `form` that is most like the last part of `place`; None where none is.

    Args:
        form: a model, or an annotation that has models in it.
        place: where the unknown key is, as pydantic tells it.
    """
    return nearest_of(str(place[-1]), keys_at(form, place[:-1]))


def nearest_of(given: str, known: Iterable[str]) -> str | None:
    """The name of `known` that is most like `given`; None where none is."""
    found = difflib.get_close_matches(given, sorted(known), 1)
    return found[0] if found else None


def meant(given: str, known: Iterable[str]) -> str:
    """What is added to an error about an unknown name: which one was probably meant, or nothing."""
    nearest = nearest_of(given, known)
    return f", did you mean {nearest}?" if nearest else ""
