"""`hanse new`: folders to begin a project with, and packages that extend Hanse."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hanse.cli.connection import Json
from hanse.cli.output import emit_json
from hanse.new import kinds, write
from hanse.new.project import project_kinds, write_project
from hanse_fabric.errors import invalid

_KINDS = (*project_kinds(), *kinds())


def new(
    kind: Annotated[
        str,
        typer.Argument(
            help=f"A project of {', '.join(project_kinds())}; or a package that offers one of: {', '.join(kinds())}."
        ),
    ],
    name: Annotated[str, typer.Argument(help="Of the project or package, and of its folder.")],
    into: Annotated[Path, typer.Option(help="The folder that it is made in.")] = Path(),
    json: Json = False,
) -> None:
    """Write a folder to begin with: a project (docs/owner.md), or a package that extends Hanse (docs/extending.md)."""
    if kind not in _KINDS:
        raise invalid("kind", kind, f"one of {', '.join(_KINDS)}")
    of_project = kind in project_kinds()
    written = (write_project if of_project else write)(kind, name, into)
    if json:
        emit_json({"files": [str(path) for path in written]})
        return
    for path in written:
        print(path)
    if of_project:
        print(f"next: cd {into / name} && python made_up.py, and go on as README.md says")
    else:
        print(f"next: pip install -e {into / name} && pytest {into / name}")
