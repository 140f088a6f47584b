"""`hanse model`: list, download, verify, promote, roll back."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hanse.cli.connection import ApiKey, Json, Url, hub
from hanse.cli.output import emit_json, emit_table
from hanse.files import record_path
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.text_files import read_text

if TYPE_CHECKING:
    from hanse_schemas.http.models import ModelView

app = typer.Typer(no_args_is_help=True, help="Model versions: list, download, verify, promote, roll back.")


@app.command("list")
def list_models(project: str, url: Url = None, api_key: ApiKey = None, json: Json = False) -> None:
    """List a project's model versions."""
    with hub(url, api_key) as connection:
        views = [model.view for model in connection.projects.get(project).models()]
    if json:
        emit_json(views)
    else:
        rows = [
            (v.version, v.stage, v.lineage.run, v.lineage.round, _marks(v), v.digest[:12], _shown(v.metrics))
            for v in views
        ]
        emit_table("Models", ("version", "stage", "run", "round", "", "digest", "metrics"), rows)


@app.command()
def download(
    project: str, version: int, path: Path, url: Url = None, api_key: ApiKey = None, json: Json = False
) -> None:
    """Fetch a version; its digest and the registry's signature are verified first."""
    with hub(url, api_key) as connection:
        model = connection.projects.get(project).model(version)
        model.download(path)
    if json:
        emit_json({"path": str(path), "record": str(record_path(path)), "digest": model.digest})
    else:
        print(f"{path} is version {version} of {project}, verified; its signed record is {record_path(path)}.")


@app.command()
def verify(
    path: Path,
    record: Annotated[Path | None, typer.Option(help="The signed record; default: beside the file.")] = None,
    trusted_key: Annotated[
        str | None, typer.Option(help="The registry's public key (base64); default: the one in the record.")
    ] = None,
    json: Json = False,
) -> None:
    """Verify a downloaded file without a hub: digest and signature."""
    from hanse.verification import verify_model
    from hanse_fabric.messages import ModelVersion

    statement = ModelVersion.decode(read_text(record or record_path(path), "model record").encode())
    try:
        key = base64.b64decode(trusted_key, validate=True) if trusted_key else statement.public_key
    except ValueError:
        raise HanseError(ErrorCode.INVALID_INPUT, f"--trusted-key: {trusted_key!r} is not base64") from None
    verify_model(path, statement, trusted_key=key)
    if json:
        emit_json({"verified": True, "version": statement.version, "digest": statement.digest})
    else:
        whose = "" if trusted_key else " (by the key in its own record: pin the hub's with --trusted-key)"
        print(f"{path} is version {statement.version} of {statement.project}, as the registry signed it{whose}.")


@app.command()
def promote(
    project: str,
    version: int,
    stage: Annotated[str, typer.Argument(help="candidate, staging, production or archived")],
    reason: str = "",
    url: Url = None,
    api_key: ApiKey = None,
) -> None:
    """Move a version to a stage; it is audited."""
    with hub(url, api_key) as connection:
        connection.projects.get(project).model(version).promote(stage, reason=reason)
    print(f"Version {version} of {project} is in {stage}.")


@app.command()
def rollback(project: str, reason: str = "", url: Url = None, api_key: ApiKey = None) -> None:
    """Put the production version before the present one back in production."""
    with hub(url, api_key) as connection:
        model = connection.projects.get(project).rollback(reason=reason)
    print(f"Version {model.version} of {project} is in production again.")


def _marks(version: ModelView) -> str:
    return ", ".join(mark for mark, has in (("best so far", version.best), ("last", version.final)) if has)


def _shown(metrics: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in sorted(metrics.items()))
