"""`hanse new`: a folder to begin a project with: what sites' data look like, a job, code of sites, what a site allows,
data that are made up, and a README whose commands try it all without a hub.

The templates are files of `project_templates/KIND`. `$name` in them is the project's name, `$site_code` the SHA-256 of
the project's `site_code.py`.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

from pydantic import TypeAdapter, ValidationError

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.names import Slug

_SITE_CODE = "site_code.py"
_SUFFIX = ".template"
_SLUG: TypeAdapter[str] = TypeAdapter(Slug)


def project_kinds() -> tuple[str, ...]:
    """What there are templates of."""
    return tuple(sorted(each.name for each in _templates().iterdir() if each.is_dir()))


def write_project(kind: str, name: str, into: Path) -> list[Path]:
    """Write a new folder `name`.

    Args:
        kind: one of `project_kinds()`.
        name: of the folder, and of the project at the hub.
        into: the folder that it is made in.

    Returns:
        The files that were written, the README first.

    Raises:
        HanseError: INVALID_INPUT for another kind or no name; CONFLICT where the folder is there.
    """
    if kind not in project_kinds():
        raise invalid("kind", kind, f"one of {', '.join(project_kinds())}")
    try:
        _SLUG.validate_python(name)
    except ValidationError:
        raise invalid("name", name, "lower-case letters, digits and inner hyphens") from None
    folder = into / name
    if folder.exists():
        raise HanseError(ErrorCode.CONFLICT, f"{folder} is there", hint="take another name, or remove it")
    texts = {each.name.removesuffix(_SUFFIX): each.read_text() for each in (_templates() / kind).iterdir()}
    filled = {"name": name, "site_code": hashlib.sha256(texts.get(_SITE_CODE, "").encode()).hexdigest()}
    folder.mkdir(parents=True)
    written = []
    for own in sorted(texts, key=lambda each: (each != "README.md", each)):
        text = texts[own] if own.endswith(".py") else Template(texts[own]).substitute(filled)
        (folder / own).write_text(text)
        written.append(folder / own)
    return written


def _templates() -> Traversable:
    return files(__package__) / "project_templates"
