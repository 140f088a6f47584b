"""`hanse audit`: attacks on one's own settings, as `hanse_privacy.attacks` runs them where it is installed."""

from __future__ import annotations

import typer

from hanse.cli.programs import AS_GIVEN, run_program

app = typer.Typer(no_args_is_help=True, help="Attacks on noise and models: what they can learn, and what they cannot.")


@app.command(context_settings=AS_GIVEN)
def collusion(context: typer.Context) -> None:
    """What all other sites learn of one site's update, in each mode of distributed noise."""
    _run("collusion", context)


@app.command(context_settings=AS_GIVEN)
def reuse(context: typer.Context) -> None:
    """What is left of the noise when sites' parts of it are used again."""
    _run("reuse", context)


@app.command(context_settings=AS_GIVEN)
def membership(context: typer.Context) -> None:
    """How well a model's losses tell who was in its training data."""
    _run("membership", context)


def _run(attack: str, context: typer.Context) -> None:
    run_program(
        "hanse_privacy.attacks", attack, *context.args, needs=("hanse_privacy",), install="hanse-privacy"
    )  # fmt: skip
