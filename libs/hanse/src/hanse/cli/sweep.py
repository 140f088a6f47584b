"""`hanse run sweep`: runs whose jobs differ in some settings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from hanse.cli.connection import ApiKey, Json, Url, hub
from hanse.cli.output import emit_json, emit_table
from hanse.sweeps import Span
from hanse_fabric.errors import HanseError, invalid
from hanse_fabric.text_files import parse_yaml

_SPAN = re.compile(r"(?P<low>[^.\s][^\s]*?)\.\.(?P<high>[^\s:]+)(?P<log>:log)?")


def sweep(
    project: str,
    job: Annotated[Path, typer.Argument(help="The job file (YAML) that all runs begin from.")],
    over: Annotated[
        list[str],
        typer.Option(help="A setting and its values: train.optimizer.lr=0.01,0.1; with --draws also LOW..HIGH[:log]."),
    ],
    draws: Annotated[int | None, typer.Option(help="Draw so many combinations; else all are run.")] = None,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 0,
    at_once: Annotated[int, typer.Option(help="Runs under way at the same time.")] = 1,
    epsilon: Annotated[float | None, typer.Option(help="What they may cost a site's privacy budget together.")] = None,
    metric: Annotated[str, typer.Option(help="To compare by; the job's stop.metric.")] = "",
    again: Annotated[bool, typer.Option("--again", help="Submit those that failed or were cancelled again.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Say what it would do, and do nothing.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the metric over the rounds: .svg, .png or .pdf.")] = None,
    url: Url = None,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Run a job with several settings, one run for each; the same command goes on where it was stopped."""
    values = dict(parse_over(each) for each in over)
    if len(values) < len(over):
        raise invalid("--over", " ".join(over), "each setting once")
    with hub(url, api_key) as connection:
        found = connection.projects.get(project)
        foreseen = found.foresee(job, values, draws=draws, seed=seed, again=again)
        if not json:
            print(foreseen.said, flush=True)
        if plan:
            _emit_plan(foreseen, json=json)
            return
        swept = found.sweep(
            job, values, draws=draws, seed=seed, at_once=at_once, epsilon=epsilon, metric=metric, again=again,
            tell=None if json else lambda said: print(said, flush=True),
        )  # fmt: skip
    if plot is not None:
        swept.plot(plot)
    best = swept.best if any(value is not None for value in swept.values) else None
    if json:
        lines = [
            {"run": view.run, "state": view.state, "settings": dict(trial.settings), "value": value}
            for trial, (view, _), value in zip(swept.trials, swept.comparison.runs, swept.values, strict=True)
        ]
        emit_json({"metric": swept.metric, "best": best, "runs": lines})
        return
    table = swept.table()
    emit_table(f"Sweep of {job}", table.header, table.rows)
    ids = " ".join(view.run for view, _ in swept.comparison.runs)
    print(f"Next: hanse run compare {project} {ids}" if len(ids) < 500 else f"Next: hanse run list {project}")


def parse_over(text: str) -> tuple[str, Any]:
    """A setting's name and its values, of `name=value,value` (as in a YAML list) or `name=LOW..HIGH[:log]`. Pure.

    Raises:
        HanseError: INVALID_INPUT.
    """
    name, sign, given = text.partition("=")
    if not sign or not name or not given:
        raise invalid("--over", text, "a setting and its values: train.optimizer.lr=0.01,0.1")
    if span := _SPAN.fullmatch(given):
        ends = [_number(part) for part in span.group("low", "high")]
        if any(isinstance(end, bool) or not isinstance(end, int | float) for end in ends):
            raise invalid(f"--over {name}", given, "two numbers: 0.001..0.1")
        return name, Span(ends[0], ends[1], log=bool(span["log"]))
    try:
        found = parse_yaml(f"[{given}]", f"--over {name}")
    except HanseError as error:
        raise invalid(f"--over {name}", given, f"values as in a YAML list ({error.message})") from None
    return name, [_number(value) if isinstance(value, str) else value for value in found]


def _number(text: str) -> Any:
    """The number that a text is, also 1e-3, which is a text in YAML 1.1; else the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _emit_plan(foreseen: Any, *, json: bool) -> None:
    there = {tag: run.run for tag, run in foreseen.there.items()}
    if json:
        runs = [{"settings": dict(each.settings), "run": there.get(each.trial)} for each in foreseen.trials]
        emit_json({"runs": runs, "epsilon": foreseen.epsilon})
        return
    names = list(foreseen.trials[0].settings)
    rows = [(*(each.settings[name] for name in names), there.get(each.trial, "")) for each in foreseen.trials]
    emit_table("Runs", (*names, "run"), rows)
