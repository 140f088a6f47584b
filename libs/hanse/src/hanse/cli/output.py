"""How the command line speaks: tables for people, one JSON document for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel

from hanse.display import Table, harmless
from hanse_fabric.errors import HanseError


def emit_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(_plain(value), default=str))


def emit_table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table for people; says so when it is empty."""
    from rich.console import Console
    from rich.table import Table as Shown

    console = Console(markup=False)  # what sites and owners wrote is no markup
    if not rows:
        console.print(f"No {title.lower()} yet.")
        return
    table = Shown(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for at, name in enumerate(header):
        table.add_column(name, no_wrap=at == 0)  # what a thing is called is copied into the next command
    for row in rows:
        table.add_row(*("" if cell is None else harmless(_at(cell)) for cell in row))
    console.print(table)


def fits(table: Table) -> bool:
    """Whether a table can be shown as it is, without broken lines."""
    from rich.console import Console

    return table.width <= Console().width


def emit_record(fields: Mapping[str, object]) -> None:
    """One thing's fields, a line each."""
    width = max(len(name) for name in fields)
    for name, value in fields.items():
        if value not in (None, "", {}, [], ()):
            print(f"{name.ljust(width)}  {harmless(_said(value))}")


def report_error(error: HanseError, *, as_json: bool) -> int:
    """Say what is wrong and what to do on standard error; returns the exit status."""
    if as_json:
        body = {"error": {"code": error.code.code, "message": error.whole, "hint": error.hint}}
        print(json.dumps(body), file=sys.stderr)
    else:
        said = "\n".join(harmless(line) for line in error.whole.split("\n"))  # a run's failure has sites' words
        print(f"hanse: {said}", file=sys.stderr)
        if error.hint:
            print(f"       {error.hint}", file=sys.stderr)
    return error.exit_status


def _said(value: object) -> str:
    if isinstance(value, Mapping):
        from hanse.views import metrics_text  # with all that answers of the hub are

        return metrics_text(value)
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else _at(value)


def _at(value: object) -> str:
    return f"{value.astimezone():%Y-%m-%d %H:%M:%S}" if isinstance(value, datetime) else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
