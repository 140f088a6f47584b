"""The sections of a file, each with its keys, found by walking from the form of the whole file to those inside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from hanse_schemas.reference.fields import allowed, example, hint, models
from hanse_schemas.reference.words import meaning, summary

Forms = tuple[type[BaseModel], ...]
FieldOf = tuple[type[BaseModel], str]
"""A form and one of its keys."""


@dataclass(frozen=True, slots=True)
class KeyNotes:
    """What the forms alone do not say.

    Attributes:
        inside: the forms of keys that are open mappings in the form, or are read by plug-ins.
        examples: of keys for which none follows from the type, or none that anybody would take.
        usual: the same by the name of a key, in whichever form.
        unnamed: keys that nobody writes into a file.
        leaves: forms whose keys are not told: nobody writes them by hand.
    """

    inside: Mapping[FieldOf, Forms]
    examples: Mapping[FieldOf, Any]
    usual: Mapping[str, Any]
    unnamed: frozenset[FieldOf] = frozenset()
    leaves: frozenset[type[BaseModel]] = frozenset()


@dataclass(frozen=True, slots=True)
class Key:
    """A key with what is told of it.

    Attributes:
        default: None where it must be given.
        example: a value, as YAML and JSON have it.
        inside: the path of the section whose keys are those of its value; "" where it is no section.
    """

    form: type[BaseModel]
    name: str
    default: Any
    needed: bool
    allowed: str
    example: Any
    words: str
    inside: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A section, or what one is by one of its names.

    Attributes:
        path: keys from the file's top, with [] for lists; "" is the top itself.
        name: which of several forms this is; "" where there is one, or where the keys are those of all.
    """

    path: str
    name: str
    words: str
    keys: tuple[Key, ...]


def sections(top: Forms, given: KeyNotes, path: str = "") -> tuple[Section, ...]:
    """All sections of a file, in the order in which they stand in it; forms that several keys share are told once.

    Args:
        top: the form of the file, or the forms that it may have.
        path: what the file's own section is called; "" for a file of its own.
    """
    told: dict[Forms, str] = {}
    found: list[Section] = []
    waiting: list[tuple[str, Forms]] = [(path, top)]
    while waiting:
        at, forms = waiting.pop(0)
        below: list[tuple[str, Forms]] = []
        made = [
            [
                _key(each, name, at, given, told, below)
                for name in each.model_fields
                if (each, name) not in given.unnamed
            ]
            for each in forms
        ]
        found += _variants(at, forms, made)
        waiting = below + waiting
    return tuple(found)


def _key(
    form: type[BaseModel],
    name: str,
    at: str,
    given: KeyNotes,
    told: dict[Forms, str],
    below: list[tuple[str, Forms]],
) -> Key:
    field, annotation = form.model_fields[name], hint(form, name)
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    forms = given.inside.get((form, name)) or tuple(
        each for each in dict.fromkeys(models(annotation)) if each not in given.leaves
    )
    inside = ""
    if forms:
        listed = "[]" if "list" in allowed(annotation) else ""
        inside = told.setdefault(forms, f"{at}.{name}{listed}".lstrip("."))
        if inside == f"{at}.{name}{listed}".lstrip(".") and (inside, forms) not in below:
            below.append((inside, forms))
    value = example_of(form, name, given)
    return Key(form, name, default, field.is_required(), allowed(annotation), value, meaning(form, name), inside)


def example_of(form: type[BaseModel], name: str, given: KeyNotes) -> Any:
    """An example of a key's value: the one that is given, the one that follows from its type, or a section with what it
    must have and one key more."""
    for each in form.__mro__:
        if (each, name) in given.examples:
            return given.examples[each, name]
    annotation = hint(form, name)
    if forms := given.inside.get((form, name)) or tuple(models(annotation)):
        section = _filled(forms[-1], given)
        return [section] if "list" in allowed(annotation) else section
    field = form.model_fields[name]
    if name in given.usual and field.default != given.usual[name]:
        return given.usual[name]
    return example(annotation, None if field.is_required() else field.default)


def _filled(form: type[BaseModel], given: KeyNotes) -> dict[str, Any]:
    filled: dict[str, Any] = {}
    for name, field in form.model_fields.items():
        if (form, name) in given.unnamed:
            continue
        if name == "name" and (form, name) not in given.examples:
            filled[name] = example(hint(form, name))
        elif field.is_required() or not filled.keys() - {"name"}:
            filled[name] = example_of(form, name, given)
    return filled


def _variants(path: str, forms: Forms, made: list[list[Key]]) -> Iterator[Section]:
    """The section itself; of several forms first the keys that all of them have, then those of each."""
    if len(forms) == 1:
        yield Section(path, "", summary(forms[0]), tuple(made[0]))
        return
    alike = [key for key in made[0] if all(any(_same(key, other) for other in keys) for keys in made)]
    words = "Which of these it is, its name or kind says."
    yield Section(path, "", f"{words} They all have these keys:" if alike else words, tuple(alike))
    for form, keys in zip(forms, made, strict=True):
        own = tuple(key for key in keys if key.name != "name" and not any(_same(key, other) for other in alike))
        yield Section(path, _name(form), summary(form), own)


def _same(one: Key, other: Key) -> bool:
    return (one.name, one.default, one.needed, one.allowed, one.words, one.inside) == (
        other.name, other.default, other.needed, other.allowed, other.words, other.inside
    )  # fmt: skip


def _name(form: type[BaseModel]) -> str:
    """By which a file says that it means this form: the choices of `name`, or of `kind`."""
    tag = next((name for name in ("name", "kind") if name in form.model_fields), "")
    return f"{tag}: {allowed(hint(form, tag))}" if tag else form.__name__
