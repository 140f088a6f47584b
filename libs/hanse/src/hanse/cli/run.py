"""`hanse run`: submit, watch, list, steer, remove."""

from __future__ import annotations

import json as json_module
import sys
import textwrap
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from hanse.cli.connection import ApiKey, Json, Url, hub
from hanse.cli.curves import curves
from hanse.cli.output import emit_json, emit_record, emit_table, fits
from hanse.cli.preflight import emit_sites, told
from hanse.cli.reaching import asked_for, attained
from hanse.cli.sweep import sweep
from hanse.display import harmless
from hanse.evaluation_tables import confusion_table, of_whom
from hanse.hub import Project, Run
from hanse.listed import words
from hanse.studies import check_completed, is_study
from hanse.views import RunView, headline
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_schemas.http.runs import SiteAnswer

app = typer.Typer(no_args_is_help=True, help="Runs: submit, watch, pause, resume, cancel, remove.")
app.command("sweep")(sweep)
app.command("curves")(curves)


def follow(run: Run, *, json: bool) -> None:
    """Show a run until it has ended; raises what it failed of."""
    from hanse.cli.progress import RunDisplay
    from hanse.cli.study_progress import StudyDisplay

    try:
        if json:
            for event in run.watch():
                print(json_module.dumps(event.model_dump(mode="json")), flush=True)
        else:
            shown = StudyDisplay() if is_study(run.view) else RunDisplay(run.view.job.get("rounds"))
            with shown as display:
                for event in run.watch():
                    display.show(event)
    except KeyboardInterrupt:
        named = f"{run.view.project} {run.id}"
        print(f"\nRun {run.id} goes on. To see it again: hanse run watch {named}", file=sys.stderr)
        print(f"To end it for good: hanse run cancel {named}", file=sys.stderr)
        raise
    if run.view.ended:
        check_completed(run.view)
        if not json:
            _say_next(run.view)


def _say_next(view: RunView) -> None:
    """Where the model is that a run has made."""
    version = view.best_version or view.model_version
    if version is None:
        return
    if view.best_version is not None:
        print(f"The best model is version {view.best_version}, the last one version {view.model_version}.")
    print(f"Next: hanse model download {view.project} {version} {view.project}.safetensors")


def _show_sites(project: Project, job: Path) -> HanseError | None:
    """The first lines of a submission: what sites say of the job. It is submitted whatever they say.

    Returns:
        HanseError: why they were not asked; None where they were.
    """
    try:
        answers = project.check(job, sites=True).get("sites") or ()
    except HanseError as error:
        return error
    if not answers:
        return None
    if any((site := SiteAnswer.model_validate(answer)).ok is not True or words(site) for answer in answers):
        emit_sites(answers)
    print(told(answers))
    return None


@app.command()
def submit(
    project: str,
    job: Annotated[Path, typer.Argument(help="The job file (YAML).")],
    watch: Annotated[bool, typer.Option(help="Show it until it has ended.")] = False,
    ask: Annotated[bool, typer.Option(help="Ask the sites first what they say of it.")] = True,
    url: Url = None,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Submit a job."""
    with hub(url, api_key) as connection:
        found = connection.projects.get(project)
        unasked = _show_sites(found, job) if ask and not json else None
        run = found.run(job)
        if unasked is not None:  # by a hub of release 0.1.0; what is wrong with the job ends its submission
            print(f"The sites were not asked: {unasked}")
        if watch:
            if not json:
                print(f"Run {run.id} is submitted.", flush=True)
            follow(run, json=json)
        elif json:
            emit_json(run.view)
        else:
            print(f"Run {run.id} is submitted. Next: hanse run watch {project} {run.id}")


@app.command()
def check(
    project: str,
    job: Path,
    sites: Annotated[bool, typer.Option("--sites", help="Ask the sites, too: data, policy and budget.")] = False,
    url: Url = None,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Have the hub check a job file without running it, and the sites where they are asked."""
    with hub(url, api_key) as connection:
        answer = connection.projects.get(project).check(job, sites=sites)
    if json:
        emit_json(answer)
        return
    print(f"{job} is a valid job for {project}.")
    for warning in answer.get("warnings", ()):
        print(f"But {warning}.")
    if sites:
        emit_sites(answer["sites"])
        print(told(answer["sites"]))
    if answer.get("privacy"):
        print(f"\n{answer['privacy']}\n")
    findings = answer.get("utility", ())
    rows = [(f["component"], f["value"], "yes" if f["ok"] else "no", f["reason"]) for f in findings]
    emit_table("Preserves utility (equals training on the pooled data)", ("component", "value", "", "why"), rows)


@app.command()
def watch(project: str, run: str, url: Url = None, api_key: ApiKey = None, json: Json = False) -> None:
    """Show a run from its beginning until it has ended."""
    with hub(url, api_key) as connection:
        follow(connection.projects.get(project).get_run(run), json=json)


@app.command("list")
def list_runs(
    project: str,
    tag: Annotated[list[str] | None, typer.Option(help="Only runs that have it; given again: all of them.")] = None,
    url: Url = None,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """List a project's runs, newest first."""
    with hub(url, api_key) as connection:
        views = [run.view for run in connection.projects.get(project).runs() if set(tag or ()) <= set(run.view.tags)]
    if json:
        emit_json(views)
    else:
        rows = [
            (v.run, v.name, ", ".join(v.tags), v.state, f"{v.round}/{v.rounds}", _begun(v), _measured(v)) for v in views
        ]
        emit_table("Runs", ("run", "name", "tags", "state", "round", "begun", "metrics"), rows)
        for view in views:
            if view.reason:  # below, for in a column it would leave no room for the others
                said = textwrap.shorten(view.reason, 200, placeholder=" ... (hanse run show)")
                print(f"{view.run}: {harmless(said)}")


@app.command()
def compare(
    project: str,
    runs: Annotated[list[str], typer.Argument(help="Two or more runs.")],
    metric: Annotated[str, typer.Option(help="What to compare them by; the first that all have measured.")] = "",
    plot: Annotated[Path | None, typer.Option(help="Draw it over the rounds: a file .svg, .png or .pdf.")] = None,
    url: Url = None,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """What runs have differently, how good each was, and how many bytes it took."""
    with hub(url, api_key) as connection:
        found = connection.projects.get(project).compare(*runs, metric=metric)
    if plot is not None:
        found.plot(plot)
    if json:
        each = [view.model_dump(mode="json") | {"history": history.rounds} for view, history in found.runs]
        emit_json({"metric": found.metric, "differences": found.differences, "runs": each})
        return
    table = found.table()
    if not fits(table):  # with many settings a column for each run is read better than a line
        table = table.turned()
    emit_table(f"Runs of {project}", table.header, table.rows)


@app.command()
def show(
    project: str,
    run: str,
    metric: Annotated[str, typer.Option(help="What to show over the rounds; accuracy where there is one.")] = "",
    target: Annotated[float | None, typer.Option(help="Say in which round it was reached, and after how much.")] = None,
    url: Url = None,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """A run's state, its metrics over the rounds at each site, and what it guarantees of privacy."""
    with hub(url, api_key) as connection:
        found = connection.projects.get(project).get_run(run)
        view, history = found.view, found.history
        labels = () if json else connection.projects.get(project).class_names()
    metric, target = asked_for(view, history, metric, target)
    reached = None if target is None or not len(history) else history.reached(target, metric)
    if json:
        body = view.model_dump(mode="json") | {"history": history.rounds, "wire": history.wire}
        aim = {} if target is None else {"target": {"metric": metric, "value": target, "reached": reached is not None}}
        if reached is not None:
            aim["target"] |= {"round": reached.round, "bytes": reached.bytes}
        emit_json(body | aim)
        return
    emit_record(view.model_dump(exclude={"job", "privacy"}))
    if metric:
        table = history.table(metric)
        print()
        emit_table(f"{metric} over {len(history)} rounds", ("", *table.header[1:]), table.rows)
    newest = history.evaluated
    if newest and (confusion := confusion_table(newest, labels)) is not None:
        print()
        emit_table(f"{confusion.title}, round {newest['round']}", confusion.head, confusion.rows)
    if newest.get("noise"):
        print(of_whom(newest))
    for name, why in history.undefined.items():
        print(harmless(f"{name}: {why}."))
    if history.traffic():
        print(f"Sent: {history.traffic()}.")
    if target is not None:
        print(f"{metric} {target:g}: {attained(reached)}.")
    if view.privacy:
        print(f"\n{view.privacy}")


@app.command()
def export(
    project: str,
    run: str,
    to: Annotated[str, typer.Option(help="mlflow, tensorboard or wandb (an offline run).")],
    into: Annotated[str, typer.Option(help="MLflow's tracking URI; a folder for the others.")] = "",
    experiment: Annotated[str, typer.Option(help="MLflow's experiment, or project of wandb; default: PROJECT.")] = "",
    model: Annotated[str, typer.Option(help="The version that goes along: best, newest or none.")] = "none",
    register: Annotated[str, typer.Option(help="Its name in MLflow's registry.")] = "",
    sites: Annotated[bool, typer.Option("--sites", help="Single sites' metrics, too.")] = False,
    url: Url = None,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Have MLflow, TensorBoard or Weights & Biases keep a run that has ended."""
    with hub(url, api_key) as connection:
        found = connection.projects.get(project).get_run(run)
        said = found.export(to, into=into, experiment=experiment, model=model, register=register, sites=sites)
    if json:
        emit_json({"run": run, "to": to, "said": said})
    else:
        print(f"Run {run} is in {said}")


def _steer(action: str, project: str, run: str, url: str | None, api_key: str | None, *, json: bool) -> None:
    with hub(url, api_key) as connection:
        steered = connection.projects.get(project).get_run(run)
        getattr(steered, action)()
    if json:
        emit_json({"run": steered.id, "requested": action})
    else:
        print(f"Run {run}: {action} requested.")


@app.command()
def pause(project: str, run: str, url: Url = None, api_key: ApiKey = None, json: Json = False) -> None:
    """Pause a run at its next step."""
    _steer("pause", project, run, url, api_key, json=json)


@app.command()
def resume(project: str, run: str, url: Url = None, api_key: ApiKey = None, json: Json = False) -> None:
    """Let a paused run go on."""
    _steer("resume", project, run, url, api_key, json=json)


@app.command()
def cancel(project: str, run: str, url: Url = None, api_key: ApiKey = None, json: Json = False) -> None:
    """End a run for good."""
    _steer("cancel", project, run, url, api_key, json=json)


@app.command()
def remove(
    project: str,
    runs: Annotated[list[str] | None, typer.Argument(help="Runs that have ended.")] = None,
    older_than: Annotated[
        int | None, typer.Option(help="All that ended so many days ago; without --yes they are only shown.", min=0)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --older-than: remove them.")] = False,
    url: Url = None,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Remove runs that have ended, with their curves and a study's results. Published versions and the audit stay."""
    if (older_than is None) is not bool(runs):
        given = f"{', '.join(runs)} and --older-than {older_than}" if runs else "none"
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"runs: {given}; either runs, or --older-than and a number of days, was expected"
        )
    with hub(url, api_key) as connection:
        found = connection.projects.get(project)
        if older_than is None:
            wanted = [found.get_run(run) for run in runs or ()]
        else:
            before = datetime.now(UTC) - timedelta(days=older_than)
            wanted = [run for run in found.runs() if run.view.ended and run.view.updated_at < before]
        removes = older_than is None or yes
        for run in wanted if removes else ():
            run.remove()
            if not json:
                print(f"Run {run.id} is removed.")
    if json:
        emit_json({"runs": [run.id for run in wanted], "removed": removes})
    elif not wanted:
        print(f"No run of {project} ended {older_than} days ago or earlier.")
    elif not removes:
        rows = [(run.id, run.view.name, run.state, _begun(run.view)) for run in wanted]
        emit_table("Runs to remove", ("run", "name", "state", "begun"), rows)
        print("Nothing was removed. With --yes they are.")


def _begun(view: RunView) -> str:
    return f"{view.created_at.astimezone():%Y-%m-%d %H:%M}"


def _measured(view: RunView) -> str:
    return headline(view.metrics)
