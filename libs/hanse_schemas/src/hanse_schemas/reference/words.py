"""What the docstring of a form says of its keys."""

from __future__ import annotations

import inspect
import re
from functools import cache

from pydantic import BaseModel

_HEADING = "Attributes:"
_KEYS = re.compile(r"^    (\w+(?:, \w+)*):\s+(.*)$")


def summary(form: type[BaseModel]) -> str:
    """The first paragraph of the docstring, in one line."""
    return " ".join(inspect.cleandoc(form.__doc__ or "").partition("\n\n")[0].split())


def meaning(form: type[BaseModel], key: str) -> str:
    """What the docstring of the form, or of one that it is made of, says of the key; "" where it says nothing."""
    return next((said[key] for each in form.__mro__ if key in (said := _said(each))), "")


@cache
def _said(form: type) -> dict[str, str]:
    found: dict[str, str] = {}
    lines = iter(inspect.cleandoc(form.__dict__.get("__doc__") or "").splitlines())
    keys: list[str] = []
    for line in lines:
        if line == _HEADING:
            break
    for line in lines:
        if not line.startswith("    "):
            break
        if told := _KEYS.match(line):
            keys = told[1].split(", ")
            found |= dict.fromkeys(keys, told[2])
        else:
            found |= {key: f"{found[key]} {line.strip()}" for key in keys}
    return found
