"""`hanse audit`: attacks on one's own settings, as `hanse_privacy.attacks` runs them where it is installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from hanse.cli.connection import Json
from hanse_fabric.errors import ErrorCode, HanseError

app = typer.Typer(no_args_is_help=True, help="Attacks on noise and models: what they can learn, and what they cannot.")

_PROGRAM = "hanse_privacy"
_LIMIT_S = 3600.0


@app.command()
def collusion(
    sites: Annotated[int, typer.Option(min=3, help="All but one of them collude.")] = 100,
    iterations: Annotated[int, typer.Option(min=10, help="How many sums are played.")] = 1000,
    json: Json = False,
) -> None:
    """What all other sites learn of one site's update, in each mode of distributed noise."""
    _run("collusion", "--sites", str(sites), "--iterations", str(iterations), json=json)


@app.command()
def membership(
    losses: Annotated[Path, typer.Argument(help='JSON: {"members": [losses], "others": [losses]}.')],
    json: Json = False,
) -> None:
    """How well a model's losses tell who was in its training data."""
    _run("membership", str(losses), json=json)


def _run(*arguments: str, json: bool) -> None:
    if importlib.util.find_spec(_PROGRAM) is None:
        raise HanseError(
            ErrorCode.UNAVAILABLE,
            f"{_PROGRAM}: not installed beside the command line, expected for audits",
            hint="pip install hanse-privacy",
        )
    command = [sys.executable, "-m", f"{_PROGRAM}.attacks", *arguments, *(["--json"] if json else [])]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise HanseError(ErrorCode.TIMEOUT, f"audit {arguments[0]}: not done within {_LIMIT_S:g} s") from None
    if done.returncode:
        raise typer.Exit(done.returncode)
