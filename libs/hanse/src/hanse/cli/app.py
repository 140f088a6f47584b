"""The command tree."""

from __future__ import annotations

from importlib import import_module

import typer

_COMMANDS = {"demo": "demo", "up": "up", "new": "new", "config": "show", "doctor": "doctor"}
"""Commands of their own: the function in the module of that name."""
_GROUPS = ("hub", "project", "site", "run", "model", "people", "audit", "lab", "gwas")


def build(asked: str | None = None) -> typer.Typer:
    """The application; errors of the catalogue pass through to `main`.

    Args:
        asked: the one command or group that is loaded, for to load all takes most of a short command's time; all where
            this is not the name of one.
    """
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        help="Federated learning and federated studies over data that may not be pooled.",
    )
    app.callback()(_nothing)  # else an application of one command would be that command
    known = (*_COMMANDS, *_GROUPS)
    for name in (asked,) if asked in known else known:
        module = import_module(f"hanse.cli.{name}")
        if name in _COMMANDS:
            app.command(name)(getattr(module, _COMMANDS[name]))
        else:
            app.add_typer(module.app, name=name)
    return app


def _nothing() -> None:
    pass
