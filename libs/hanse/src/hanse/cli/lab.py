"""`hanse lab`: experiments in one process, as `hanse_lab` plays them where it is installed with torch."""

from __future__ import annotations

import typer

from hanse.cli.programs import AS_GIVEN, run_program

app = typer.Typer(no_args_is_help=True, help="Experiments without servers: algorithms x partitions x attacks x seeds.")


@app.callback()
def lab() -> None:
    """Experiments without servers."""


@app.command(context_settings=AS_GIVEN)
def run(context: typer.Context) -> None:
    """Play experiments, and write their tables and curves. What was played already is not played again."""
    run_program("hanse_lab", "run", *context.args, needs=("hanse_lab", "torch"), install="hanse-lab")
