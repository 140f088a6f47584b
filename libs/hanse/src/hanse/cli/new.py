"""`hanse new`: packages that extend Hanse."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hanse.cli.connection import Json
from hanse.cli.output import emit_json
from hanse.new import kinds, write


def new(
    kind: Annotated[str, typer.Argument(help=f"What it offers: {', '.join(kinds())}.")],
    name: Annotated[str, typer.Argument(help="Of the package, and of what it offers: winsorized_mean.")],
    into: Annotated[Path, typer.Option(help="The folder that the package's folder is made in.")] = Path(),
    json: Json = False,
) -> None:
    """Write a package with its entry point, code, a test and a README, to be changed (docs/extending.md)."""
    written = write(kind, name, into)
    if json:
        emit_json({"files": [str(path) for path in written]})
        return
    for path in written:
        print(path)
    print(f"next: pip install -e {into / name} && pytest {into / name}")
