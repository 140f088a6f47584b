"""`hanse run curves`: what an evaluation has beside its metrics, to be read and looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hanse.cli.connection import ApiKey, Json, Url, hub
from hanse.cli.output import emit_json, emit_table
from hanse.evaluation_tables import curves_tables, of_whom


def curves(
    project: str,
    run: str,
    round: Annotated[int | None, typer.Option(help="The round; the newest that was evaluated.")] = None,  # noqa: A002
    plot: Annotated[Path | None, typer.Option(help="Draw the curves: a file .svg, .png or .pdf.")] = None,
    url: Url = None,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Confusion matrix, ROC, precision by recall, calibration, classes and groups, of all sites' test examples."""
    with hub(url, api_key) as connection:
        found = connection.projects.get(project)
        shown, labels = found.get_run(run).curves(round), found.class_names()
    if plot is not None:
        from hanse.figures import draw_curves

        draw_curves(shown, plot, labels)
    if json:
        emit_json(shown | {"class_names": list(labels)})
        return
    print(f"Round {shown['round']}. {of_whom(shown)}")
    for made in curves_tables(shown, labels):
        print()
        if made.rows:
            emit_table(made.title, made.head, made.rows)
        if made.note:
            print(made.note)
