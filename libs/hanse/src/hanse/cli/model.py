"""`hanse model`: list, download, verify, export, use, promote, roll back."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hanse.cli.connection import ApiKey, Json, Url, hub
from hanse.cli.keys_given import key_of
from hanse.cli.output import emit_json, emit_table
from hanse.files import record_path
from hanse.views import headline
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_schemas.csv_form import Encoding

if TYPE_CHECKING:
    from hanse_schemas.http.models import ModelView

app = typer.Typer(no_args_is_help=True, help="Model versions: list, download, verify, export, use, promote, roll back.")


def _version(given: str) -> str:
    if not re.fullmatch(r"[1-9][0-9]{0,8}|[0-9a-f]{4,64}", given):
        raise typer.BadParameter(f"{given!r} is neither a version's number nor four or more characters of its digest")
    return given


Version = Annotated[
    str,
    typer.Argument(help="Its number, or the beginning of its digest (`hanse model list`).", callback=_version),
]
Record = Annotated[Path | None, typer.Option(help="The signed record; default: beside the file.")]
TrustedKey = Annotated[
    str | None, typer.Option(help="The registry's public key (base64); default: the one in the record.")
]


@app.command("list")
def list_models(project: str, url: Url = None, api_key: ApiKey = None, json: Json = False) -> None:
    """List a project's model versions."""
    with hub(url, api_key) as connection:
        views = [model.view for model in connection.projects.get(project).models()]
    if json:
        emit_json(views)
    else:
        best = best_of_runs(views)
        rows = [
            (v.version, v.stage, v.lineage.run, v.lineage.round, _marks(v, best), v.digest[:8], headline(v.metrics))
            for v in views
        ]
        emit_table("Models", ("version", "stage", "run", "round", "", "digest", "metrics"), rows)


@app.command()
def download(
    project: str, version: Version, path: Path, url: Url = None, api_key: ApiKey = None, json: Json = False
) -> None:
    """Fetch a version; its digest and the registry's signature are verified first."""
    with hub(url, api_key) as connection:
        model = connection.projects.get(project).model(version)
        model.download(path)
    if json:
        emit_json({"path": str(path), "record": str(record_path(path)), "digest": model.digest})
    else:
        print(f"{path} is version {model.version} of {project}, verified; its signed record is {record_path(path)}.")
        if ((model.view.problem or {}).get("schema") or {}).get("kind") == "tabular":
            print(f"Next: hanse model predict {path} TABLE.csv PREDICTIONS.csv")


@app.command()
def verify(path: Path, record: Record = None, trusted_key: TrustedKey = None, json: Json = False) -> None:
    """Verify a downloaded file without a hub: digest and signature."""
    from hanse.trained import read_record
    from hanse.verification import verify_model

    statement = read_record(path, record)
    verify_model(path, statement, trusted_key=key_of(trusted_key) or statement.public_key)
    if json:
        emit_json({"verified": True, "version": statement.version, "digest": statement.digest})
    else:
        whose = "" if trusted_key else " (by the key in its own record: pin the hub's with --trusted-key)"
        print(f"{path} is version {statement.version} of {statement.project}, as the registry signed it{whose}.")


@app.command()
def export(path: Path, output: Path, record: Record = None, trusted_key: TrustedKey = None, json: Json = False) -> None:
    """Write a downloaded model as ONNX, which runs without Hanse and without torch; it is verified first."""
    from hanse.trained import load

    model = load(path, record=record, trusted_key=key_of(trusted_key))
    written = model.to_onnx(output)
    if json:
        emit_json({"path": str(written), "project": model.record.project, "version": model.record.version})
    else:
        print(f"{written} gives what version {model.record.version} of {model.record.project} gives.")


@app.command()
def predict(
    path: Path,
    table: Annotated[
        Path,
        typer.Argument(help="CSV or Parquet with the features' columns; of a model of arrays NPZ with an array x."),
    ],
    output: Annotated[Path, typer.Argument(help="CSV file to write: the table, and what the model says of each row.")],
    encoding: Annotated[Encoding, typer.Option(help="Of the table's text.")] = "utf-8",
    record: Record = None,
    trusted_key: TrustedKey = None,
    json: Json = False,
) -> None:
    """Have a downloaded model say what it makes of the rows of a table; it is verified first."""
    from hanse.predictions import write_predictions
    from hanse.trained import load

    model = load(path, record=record, trusted_key=key_of(trusted_key))
    rows = write_predictions(model, table, output, encoding)
    if json:
        named = {"project": model.record.project, "version": model.record.version}
        emit_json({"path": str(output), "rows": rows, **named})
        return
    print(f"{output}: {rows} rows of {table}, with the model's predictions.")


@app.command()
def card(
    project: str,
    version: Version,
    output: Annotated[Path | None, typer.Argument(help="A Markdown file to write; none: print it.")] = None,
    url: Url = None,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Write a version's model card: what the hub knows, and the questions that its owners must answer."""
    with hub(url, api_key) as connection:
        model = connection.projects.get(project).model(version)
        text = model.card()
    named = {"project": project, "version": model.version}
    if output is None:
        if json:
            emit_json({**named, "card": text})
        else:
            print(text, end="")
        return
    try:
        with output.open("x", encoding="utf-8") as file:  # one that people have filled in is not written over
            file.write(text)
    except FileExistsError:
        raise HanseError(ErrorCode.CONFLICT, f"{output}: it is there already", hint="name another file") from None
    except OSError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"{output}: it cannot be written: {error.strerror}") from None
    if json:
        emit_json({**named, "path": str(output)})
        return
    print(f"{output} is the card of version {model.version} of {project}; four sections are left to fill in.")


@app.command()
def promote(
    project: str,
    version: Version,
    stage: Annotated[str, typer.Argument(help="candidate, staging, production or archived")],
    reason: str = "",
    url: Url = None,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Move a version to a stage; it is audited."""
    with hub(url, api_key) as connection:
        model = connection.projects.get(project).model(version).promote(stage, reason=reason)
    if json:
        emit_json(model.view)
    else:
        print(f"Version {model.version} of {project} is in {stage}.")


@app.command()
def rollback(project: str, reason: str = "", url: Url = None, api_key: ApiKey = None, json: Json = False) -> None:
    """Put the production version before the present one back in production."""
    with hub(url, api_key) as connection:
        model = connection.projects.get(project).rollback(reason=reason)
    if json:
        emit_json(model.view)
    else:
        print(f"Version {model.version} of {project} is in production again.")


def best_of_runs(versions: Iterable[ModelView]) -> set[int]:
    """The version of each run that is its best: a run marks each that was better than all before."""
    best: dict[str, ModelView] = {}
    for version in versions:
        if version.best:
            run = version.lineage.run
            best[run] = max(version, best.get(run, version), key=lambda each: (each.lineage.round, each.version))
    return {version.version for version in best.values()}


def _marks(version: ModelView, best: Collection[int]) -> str:
    return ", ".join(mark for mark, has in (("best", version.version in best), ("last", version.final)) if has)
