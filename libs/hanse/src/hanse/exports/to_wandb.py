"""A run as an offline run of Weights & Biases. Nothing is sent: `wandb sync` sends it, when its owner wants that."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # which would go out even where a run stays here
import wandb

from hanse_fabric.errors import ErrorCode, HanseError

if TYPE_CHECKING:
    from hanse.exports.exported import ExportedModel, ExportedRun
    from hanse.exports.wanted import Wanted

_STATES = {"completed": 0, "failed": 1, "cancelled": 255}


def keep(exported: ExportedRun, wanted: Wanted) -> str:
    """Write an offline run into `<into>/wandb`, under the run's own id, which is whole or not there; see
    `hanse.exports.export_run`."""
    into = Path(wanted.into or ".").absolute()
    view = exported.view
    if there := next(iter(sorted((into / "wandb").glob(f"offline-run-*-{view.run}"))), None):
        raise HanseError(ErrorCode.CONFLICT, f"{there}: it is there already", hint="delete it, or name another folder")
    unfinished = into / f".{view.run}.unfinished"
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        kept = wandb.init(
            project=wanted.experiment or view.project, id=view.run, name=exported.called, tags=list(view.tags),
            notes=view.reason or None, config={**exported.settings, **exported.origin},
            mode="offline", dir=str(unfinished), reinit="create_new", settings=_quiet(),
        )  # fmt: skip
    except (OSError, wandb.Error) as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"{into}: no run can be begun there: {error}") from None
    state = 255
    try:
        _log(kept, exported)
        state = _STATES[view.state]
    finally:
        kept.finish(exit_code=state)
    made = Path(kept.settings.sync_dir)
    folder = into / "wandb" / made.name
    folder.parent.mkdir(exist_ok=True)
    made.replace(folder)
    shutil.rmtree(unfinished, ignore_errors=True)
    return f"{folder}: wandb sync {folder}"


def _log(kept: wandb.Run, exported: ExportedRun) -> None:
    kept.define_metric("*", step_metric="round")
    for point in exported.points():
        kept.log({**point.metrics, "round": point.round}, step=point.round)
    if exported.model is not None:
        _log_model(kept, exported.model, exported.view.project)


def _quiet() -> wandb.Settings:
    """Nothing of this machine goes along: its load, its packages, its folders, what it prints."""
    return wandb.Settings(
        console="off", silent=True, disable_git=True, disable_code=True, save_code=False, host="hanse",
        x_disable_stats=True, x_disable_machine_info=True, x_disable_meta=True, x_save_requirements=False,
    )  # fmt: skip


def _log_model(kept: wandb.Run, model: ExportedModel, project: str) -> None:
    artifact = wandb.Artifact(
        f"{project}-model", type="model", description=f"version {model.view.version}",
        metadata={"version": model.view.version, "digest": model.view.digest},
    )  # fmt: skip
    for file in sorted(model.file.parent.iterdir()):
        artifact.add_file(str(file), name=file.name)
    kept.log_artifact(artifact)
