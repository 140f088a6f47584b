"""What is wrong with a message, a job file or settings, in words for who wrote it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from itertools import islice
from typing import get_args

from pydantic import SecretStr, ValidationError
from pydantic_core import ErrorDetails

from hanse_fabric.messages.nearest import nearest_key, nearest_of
from hanse_fabric.messages.places import place_of
from hanse_fabric.names import IN_WORDS

_LISTS = frozenset({"tuple_type", "list_type", "set_type", "frozen_set_type"})
_LIST_EXPECTED = "a list is needed, as [one, another]"
"""What people who write YAML and JSON call it."""
_SECTIONS = frozenset({"dict_type", "model_type", "model_attributes_type"})
_KINDS = {
    list: "a list", tuple: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number",
    date: "a date", datetime: "a date", type(None): "nothing",
}  # fmt: skip
_NAMED_FORMS = frozenset({"union_tag_not_found", "union_tag_invalid"})
_WORDS = frozenset({"literal_error", "enum"})
_TOLD = 5
_Place = tuple[int | str, ...]
_OF_PYDANTIC = "Value error, "
"""What it puts before the words of our own checks."""


def explain(error: ValidationError, form: object = None) -> str:
    """A validation error in one line: each field, what was given, what was expected.

    Args:
        form: the model that was expected: of a key that it has not, the nearest that it has is told. Of what was given
            for one that holds secrets nothing is told.
    """
    hides = _holds_secrets(form)
    told: dict[tuple[str, str], list[str]] = {}
    items = sorted(error.errors(include_url=False), key=_is_of_the_whole)
    for item in islice(_without_wrong_words(form, items), _TOLD):
        field = ".".join(map(str, place_of(form, item["loc"])))
        shown = repr(item.get("input"))
        shown = shown if len(shown) <= 80 else shown[:77] + "..."
        wanted = expected(item)
        if item["type"] == "extra_forbidden":
            meant = nearest_key(form, item["loc"])
            wanted += f", did you mean {meant}?" if meant else ""
        elif (meant := _nearest_value(item)) is not None:
            wanted += f", did you mean {meant}?"
        of_whole = not field and item["type"] == "value_error"  # it says itself which fields do not go together
        told.setdefault((field, "" if hides or of_whole else f" (given {shown})"), []).append(wanted)
    return "; ".join(
        f"{field}: {', or '.join(each)}".removeprefix(": ") + given for (field, given), each in told.items()
    )


def expected(item: ErrorDetails) -> str:
    """What was expected, in our words where pydantic's are for programmers."""
    if item["type"] in _LISTS:
        return _LIST_EXPECTED
    if item["type"] in _SECTIONS:
        return f"a section is needed, as {{key: value}}, not {_KINDS.get(type(item['input']), 'another kind of value')}"
    if item["type"] in _NAMED_FORMS:
        key = item["ctx"]["discriminator"].strip("'_()")  # a function that finds it, too, is named as the key
        known = item["ctx"].get("expected_tags")
        return f"{key}: one of {known} is needed" if known else f"{key} is needed, which says what it is"
    said = item["msg"].removeprefix(_OF_PYDANTIC)
    return IN_WORDS.get(item["ctx"]["pattern"], said) if item["type"] == "string_pattern_mismatch" else said


def _without_wrong_words(form: object, items: Sequence[ErrorDetails]) -> Iterator[ErrorDetails]:
    """Without what says of a section that it is none of the words that may stand there too, if what is wrong in it is
    told besides. A hostile body has a hundred thousand mistakes, so places are found only where they are asked for."""
    told: set[_Place] | None = None
    for item in items:
        if _is_no_word(item):
            if told is None:
                told = _places_told(form, (other for other in items if not _is_no_word(other)))
            if place_of(form, item["loc"]) in told:
                continue
        yield item


def _is_no_word(item: ErrorDetails) -> bool:
    return item["type"] in _WORDS and isinstance(item["input"], Mapping)


def _places_told(form: object, items: Iterable[ErrorDetails]) -> set[_Place]:
    """Where something is wrong, and all that it lies in."""
    places = (place_of(form, item["loc"]) for item in items)
    return {place[:length] for place in places for length in range(len(place) + 1)}


def _is_of_the_whole(item: ErrorDetails) -> bool:
    """False for a key that the whole has not, and so first: what else is wrong often follows from it."""
    return not (item["type"] == "extra_forbidden" and len(item["loc"]) == 1)


def _nearest_value(item: ErrorDetails) -> str | None:
    """Of few values that may stand there, the one that was probably meant."""
    context = item.get("ctx") or {}
    match item["type"]:
        case "literal_error" | "enum":
            given, known = item.get("input"), context.get("expected")
        case "union_tag_invalid":
            given, known = context.get("tag"), context.get("expected_tags")
        case _:
            return None
    return nearest_of(given, re.findall(r"'([^']*)'", str(known))) if isinstance(given, str) else None


def _holds_secrets(form: object) -> bool:
    fields = getattr(form, "model_fields", {}).values()
    return any(SecretStr in (field.annotation, *get_args(field.annotation)) for field in fields)
