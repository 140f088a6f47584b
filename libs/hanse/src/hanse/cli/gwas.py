"""`hanse gwas`: association studies, from the study file to table and report."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from hanse.cli.connection import ApiKey, Json, Url, hub
from hanse.cli.output import emit_json
from hanse.embedded import check_installed
from hanse.hub import Hub, Project, Run
from hanse.jobs import read_job
from hanse.studies import ArrayBytes, check_completed, check_formatter, publish, save_study
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_schemas.job import STUDY, check_job

app = typer.Typer(no_args_is_help=True, help="Genome-wide association studies over cohorts that stay where they are.")

ProjectName = Annotated[
    str | None, typer.Option("--project", envvar="HANSE_PROJECT", help="The project; default: the hub's only one.")
]


@app.callback()
def gwas() -> None:
    """Association studies."""


@app.command()
def run(
    study: Annotated[Path, typer.Argument(help="The study's job file (YAML).")],
    out: Annotated[
        Path | None, typer.Option(help="Wait, and put table and report there; needs hanse-genomics.")
    ] = None,
    watch: Annotated[bool, typer.Option(help="Show it until it has ended.")] = False,
    project: ProjectName = None,
    url: Url = None,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Submit a study; with --watch show it, with --out fetch its results."""
    job = check_job(read_job(study))
    if job.workflow != STUDY:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"{study}: workflow: {job.workflow}, {STUDY} was expected",
            hint="hanse run submit PROJECT JOB submits training",
        )
    if out is not None:
        check_formatter()  # now, not after hours
    with hub(url, api_key) as connection:
        found = chosen_project(connection, project)
        submitted = found.run(study)
        if out is None and not watch:
            _emit_submitted(submitted, json=json)
            return
        try:
            traffic = follow_study(submitted, json=json and watch, quiet=not watch)
        except KeyboardInterrupt:
            print(f"\nRun {submitted.id} goes on. Later: {_fetching(submitted)}", file=sys.stderr)
            raise
        if out is not None:
            _emit_published(save_study(submitted, out, traffic=traffic), out, json=json)
        elif json:
            emit_json(submitted.view)
        else:
            print(f"Run {submitted.id} is completed. Next: {_fetching(submitted)}")


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Where results lie, or are put.")],
    run: Annotated[str | None, typer.Option("--run", help="Fetch the results of this run first.")] = None,
    project: ProjectName = None,
    url: Url = None,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Write table and report of a study: of results in the folder, or of a run's."""
    if run is None:
        answer = publish(folder)
    else:
        with hub(url, api_key) as connection:
            answer = save_study(chosen_project(connection, project).get_run(run), folder)
    _emit_published(answer, folder, json=json)


@app.command()
def demo(
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Where everything is put; default: a new folder in .hanse/gwas-demo.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the simulated cohorts.")] = 1,
    json: Json = False,
) -> None:
    """Study three cohorts with uneven shares of cases on this machine, and compare with pooled and meta-analysis."""
    import asyncio

    check_installed()
    from hanse.demo.gwas import GwasScenario
    from hanse.demo.gwas_report import emit_report

    check_formatter()
    outcome = asyncio.run(GwasScenario.create(directory, seed=seed).play(quiet=json))
    if json:
        print(json_module.dumps(outcome.as_json()))
    else:
        emit_report(outcome)


def chosen_project(connection: Hub, name: str | None) -> Project:
    """The project of that name, or the hub's only one.

    Raises:
        HanseError: NOT_FOUND; INVALID_INPUT when none is named and there is not exactly one.
    """
    if name:
        return connection.projects.get(name)
    names = [view.name for view in connection.projects.list()]
    if len(names) != 1:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"--project: none is named, and the hub has {len(names)}: {', '.join(sorted(names)) or 'none'}",
            hint="give --project or HANSE_PROJECT",
        )
    return connection.projects.get(names[0])


def follow_study(run: Run, *, json: bool = False, quiet: bool = False) -> ArrayBytes:
    """Show a study until it has ended; raises what it failed of.

    Returns:
        what has crossed for it.
    """
    from rich.console import Console

    from hanse.cli.study_progress import StudyDisplay

    with StudyDisplay(console=Console(quiet=quiet or json)) as display:
        for event in run.watch():
            if json:
                print(json_module.dumps(event.model_dump(mode="json")), flush=True)
            display.show(event)
    check_completed(run.view)
    return display.traffic


def _fetching(run: Run) -> str:
    return f"hanse gwas report DIR --run {run.id} --project {run.view.project}"


def _emit_submitted(run: Run, *, json: bool) -> None:
    if json:
        emit_json(run.view)
        return
    print(f"Run {run.id} is submitted to {run.view.project}.")
    print(f"Next: hanse run watch {run.view.project} {run.id}")
    print(f"Then: {_fetching(run)}")


def _emit_published(answer: dict[str, Any], folder: Path, *, json: bool) -> None:
    if json:
        emit_json({**answer, "folder": str(folder)})
        return
    found = answer["inflation"]
    inflated = "" if found is None else f" Genomic inflation is {found:.3f}."
    print(f"{answer['tested']} of {answer['snps']} SNPs were tested, {answer['significant']} reach 5e-8.{inflated}")
    for name in answer["files"]:
        print(f"  {folder / name}")
    for name, hint in answer["without"].items():
        print(f"  {name} was not made: {hint}")
