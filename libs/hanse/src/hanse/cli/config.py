"""`hanse config`: every setting of every installed service, with its variable, default and meaning."""

from __future__ import annotations

from dataclasses import asdict
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
    from hanse_fabric.settings import describe, registered_settings

    found = registered_settings()
    if service is not None and service not in found:
        raise HanseError(ErrorCode.NOT_FOUND, f"service: {service!r} is not one of {', '.join(found)}")
    chosen = [service] if service else list(found)
    documented = {name: describe(found[name]) for name in chosen}
    if json:
        emit_json({name: [asdict(row) for row in rows] for name, rows in documented.items()})
        return
    for name, rows in documented.items():
        table = [
            (row.env, row.type, "required" if row.default is None else row.default, row.description) for row in rows
        ]
        emit_table(f"Settings of {name}", ("variable", "type", "default", "meaning"), table)
        print()
