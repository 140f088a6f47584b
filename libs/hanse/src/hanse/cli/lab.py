"""`hanse lab`: experiments in one process, as `hanse_lab` plays them where it is installed with torch."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from hanse.cli.connection import Json
from hanse_fabric.errors import ErrorCode, HanseError

app = typer.Typer(no_args_is_help=True, help="Experiments without servers: algorithms x partitions x attacks x seeds.")

_NEEDED = ("hanse_lab", "torch")
_SPARE_S = 60.0
"""For the program to end by its own limit first."""


@app.callback()
def lab() -> None:
    """Experiments without servers."""


@app.command()
def run(
    files: Annotated[list[Path], typer.Argument(help="Experiment files (YAML).")],
    out: Annotated[Path, typer.Option(help="Where outcomes, tables and curves are put.")] = Path(".hanse/lab"),
    page: Annotated[Path | None, typer.Option(help="Also write one page of all experiments.")] = None,
    lead: Annotated[Path | None, typer.Option(exists=True, help="A file that the page begins with.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes at once; default: the cores.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Only the first so many seeds.")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="No more rounds than these.")] = None,
    limit: Annotated[float, typer.Option(min=1.0, help="Seconds for each experiment.")] = 86_400.0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Play again what was played.")] = False,
    json: Json = False,
) -> None:
    """Play experiments, and write their tables and curves. What was played already is not played again."""
    for module in _NEEDED:
        if importlib.util.find_spec(module) is None:
            raise HanseError(
                ErrorCode.UNAVAILABLE,
                f"{module}: not installed beside the command line, expected for experiments",
                hint="pip install hanse-lab",
            )
    command = [sys.executable, "-m", "hanse_lab", "run", *map(str, files), "--out", str(out)]
    given = {"page": page, "lead": lead, "workers": workers, "seeds": seeds, "rounds": rounds, "limit": limit}
    for name, value in given.items():
        command += [] if value is None else [f"--{name}", str(value)]
    command += [f"--{name}" for name, chosen in (("fresh", fresh), ("json", json)) if chosen]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, timeout=limit * len(files) + _SPARE_S, check=False
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise HanseError(ErrorCode.TIMEOUT, f"lab: not done within {limit:g} s an experiment") from None
    if done.returncode:
        raise typer.Exit(done.returncode)
