"""`hanse config`: every setting of every installed service, with its variable, default and meaning."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Annotated

import typer

from hanse.cli.connection import Json
from hanse.cli.output import emit_json, emit_table
from hanse_fabric.errors import ErrorCode, HanseError


def show(
    service: Annotated[str | None, typer.Argument(help="One service; default: all that are installed.")] = None,
    json: Json = False,
) -> None:
    """Document every setting: environment variable, type, default, meaning."""
    from hanse_fabric.settings import describe

    found = {entry.name: entry for entry in entry_points(group="hanse.settings")}
    if service is not None and service not in found:
        raise HanseError(ErrorCode.NOT_FOUND, f"service: {service!r} is not one of {', '.join(sorted(found))}")
    chosen = [found[service]] if service else [found[name] for name in sorted(found)]
    documented = {entry.name: describe(entry.load()) for entry in chosen}
    if json:
        emit_json({name: [row._asdict() for row in rows] for name, rows in documented.items()})
        return
    for name, rows in documented.items():
        table = [(row.env, row.type, row.default, row.description) for row in rows]
        emit_table(f"Settings of {name}", ("variable", "type", "default", "meaning"), table)
        print()
