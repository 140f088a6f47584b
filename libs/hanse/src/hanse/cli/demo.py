"""`hanse demo`: four sites with uneven shares of real data train one model, each alone, and pooled."""

from __future__ import annotations

import asyncio
import json as json_module
from pathlib import Path
from typing import Annotated

import typer

from hanse.cli.connection import Json
from hanse.embedded import check_installed


def demo(
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Where everything is put; default: a new folder in .hanse/demo.")
    ] = None,
    sites: Annotated[int, typer.Option(min=2, max=16, help="How many sites.")] = 4,
    rounds: Annotated[int, typer.Option(min=1, help="How many rounds.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Of the partition and of training.")] = 1,
    json: Json = False,
) -> None:
    """Train one model across sites on this machine, through real servers, and compare."""
    check_installed()
    from hanse.demo.report import emit_report
    from hanse.demo.scenario import Scenario

    outcome = asyncio.run(Scenario.create(directory, sites=sites, rounds=rounds, seed=seed).play(quiet=json))
    if json:
        print(json_module.dumps(outcome.as_json()))
    else:
        emit_report(outcome)
