"""`hanse new`: a package that extends Hanse, with its entry point, code, test and README, to be changed by its author.

The templates are files of `templates/KIND`; `$name` and `$class_name` in them and in their names are filled in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from string import Template

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.plugins import KINDS, find, names

_NAME = re.compile(r"[a-z][a-z0-9_]{1,62}")


def kinds() -> tuple[str, ...]:
    """What there are templates of."""
    return tuple(sorted(each.name for each in _templates().iterdir() if each.is_dir()))


def write(kind: str, name: str, into: Path) -> list[Path]:
    """Write a package `name` into a new folder of that name.

    Args:
        kind: one of `kinds()`.
        name: of the package, of its module and of what it offers.
        into: the folder that the package's folder is made in.

    Returns:
        The files that were written.

    Raises:
        HanseError: INVALID_INPUT for another kind or no name; CONFLICT where folder, module or name are there.
    """
    if kind not in kinds():
        raise invalid("kind", kind, f"one of {', '.join(kinds())}")
    if not _NAME.fullmatch(name) or iskeyword(name):
        raise invalid("name", name, "a name of a-z, 0-9 and _, from a letter on, of 2 to 63 characters")
    group = next(group for group, word in KINDS.items() if word == kind)
    if name in names(group):
        raise HanseError(ErrorCode.CONFLICT, f"name: {find(group, name)} is installed", hint="take another name")
    if find_spec(name) is not None:
        raise HanseError(ErrorCode.CONFLICT, f"name: a module {name} is installed", hint="take another name")
    folder = into / name
    if folder.exists():
        raise HanseError(ErrorCode.CONFLICT, f"{folder} is there", hint="take another name, or remove it")
    filled = {"name": name, "class_name": name.title().replace("_", "")}
    written = []
    for template, path in _files(_templates() / kind, Path()):
        target = folder / Template(str(path)).substitute(filled)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(Template(template.read_text()).substitute(filled))
        written.append(target)
    return written


def _templates() -> Traversable:
    return files(__package__) / "templates"


def _files(folder: Traversable, at: Path) -> Iterator[tuple[Traversable, Path]]:
    """Templates with the paths that they are written to."""
    for each in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if each.is_dir():
            yield from _files(each, at / each.name)
        else:
            yield each, at / each.name.removesuffix(".template")
