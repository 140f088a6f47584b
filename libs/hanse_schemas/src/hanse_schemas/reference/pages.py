"""A page of tables in Markdown, one for each section."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

import yaml
from pydantic import BaseModel

from hanse_schemas.reference.sections import Key, Section

_LONGEST = 60
"""Of a default, in characters: longer ones are told by their length."""


def page(title: str, words: str, files: Mapping[str, Iterable[Section]]) -> str:
    """The page.

    Args:
        words: what stands before the tables: what the page is of, and what it was made by.
        files: the sections by what the file is called.
    """
    lines = [f"# {title}", "", words]
    for file, found in files.items():
        lines += ["", f"## {file}", *(line for each in found for line in _section(each))]
    return "\n".join(lines) + "\n"


def flow(value: Any) -> str:
    """A value as YAML has it in one line."""
    if isinstance(value, Enum):
        return flow(value.value)
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {flow(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(flow(inner) for inner in value)}]"
    if isinstance(value, str):
        plain = re.fullmatch(r"[A-Za-z][\w.-]*", value) and yaml.safe_load(value) == value  # `yes` is a boolean
        return value if plain else json.dumps(value)
    if isinstance(value, float):
        return f"{value:.15g}" if value != int(value) else f"{value:.1f}"
    return json.dumps(value)


def _section(section: Section) -> Iterator[str]:
    if section.name:
        yield from ("", f"#### `{section.path}`, {section.name}", "")
    elif section.path:
        yield from ("", f"### `{section.path}`", "")
    if section.words:
        yield section.words
    if section.keys:
        yield from ("", "| Key | Default | What may be given | Example | |", "|---|---|---|---|---|")
        yield from (_row(key) for key in section.keys)


def _row(key: Key) -> str:
    words = f"{key.words} Its keys: [`{key.inside}`](#{_anchor(key.inside)})." if key.inside else key.words
    given = key.allowed.replace("section", "a section") if key.allowed.startswith("section") else key.allowed
    cells = (f"`{key.name}`", _default(key), given, f"`{key.name}: {flow(key.example)}`", words.strip())
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _anchor(path: str) -> str:
    """As renderers make it of a heading."""
    return re.sub(r"[^\w-]", "", path.lower())


def _default(key: Key) -> str:
    value = key.default
    if key.needed:
        return "must be given"
    if value is None:
        return "none"
    if isinstance(value, BaseModel):
        return "its keys' defaults"
    if isinstance(value, tuple | dict | str) and not value:
        return "empty"
    shown = flow(value)
    return f"`{shown}`" if len(shown) <= _LONGEST else f"all {len(value)}"
