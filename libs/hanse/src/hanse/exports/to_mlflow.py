"""A run in MLflow: its settings and metrics in the tracking store, a model of it as a flavour, and in the registry.

No global state of MLflow is touched (its active run, its tracking URI), so that a notebook goes on as it was.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # what is done at a hospital is not told to anybody
from mlflow.entities import LoggedModelOutput, Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.models import Model, ModelSignature
from mlflow.pyfunc import save_model
from mlflow.tracking import MlflowClient
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema, TensorSpec
from mlflow.types.schema import AnyType
from sqlalchemy.exc import SQLAlchemyError

from hanse.exports.flavour import FILE
from hanse.files import record_path
from hanse.trained import TrainedModel, load
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_schemas.schema import ArraySchema, TabularSchema

if TYPE_CHECKING:
    from hanse.exports.exported import ExportedModel, ExportedRun
    from hanse.exports.wanted import Wanted

_STATES = {"completed": "FINISHED", "failed": "FAILED", "cancelled": "KILLED"}
_WHOLE = "hanse.exported"
_LONGEST = 6000
"""Characters of a setting's value in MLflow's stores."""
_MOST = 100
"""Settings, metrics or tags in one request, which each of them takes."""


def keep(exported: ExportedRun, wanted: Wanted) -> str:
    """Keep a run, once: what a broken export has left is deleted first; see `hanse.exports.export_run`."""
    try:
        client = MlflowClient(tracking_uri=wanted.into or None, registry_uri=wanted.into or None)
        return _keep(client, exported, wanted)
    except MlflowException as error:
        raise HanseError(ErrorCode.UNAVAILABLE, f"MLflow refuses: {error.message}") from None
    except SQLAlchemyError as error:  # of a file that is no database, or is locked
        why = getattr(error, "orig", None) or error
        raise HanseError(ErrorCode.UNAVAILABLE, f"{wanted.into}: its database refuses: {why}") from None


def _keep(client: MlflowClient, exported: ExportedRun, wanted: Wanted) -> str:
    view = exported.view
    experiment = _experiment(client, wanted.experiment or view.project)
    for former in client.search_runs([experiment], filter_string=f"tags.`hanse.run` = '{view.run}'"):
        if former.data.tags.get(_WHOLE):
            raise HanseError(
                ErrorCode.CONFLICT, f"run {view.run}: MLflow has it as {former.info.run_id}",
                hint="delete it there, or name another experiment",
            )  # fmt: skip
        client.delete_run(former.info.run_id)
    begun = client.create_run(
        experiment, run_name=exported.called, tags=exported.origin, start_time=_milliseconds(view.created_at)
    )
    run = begun.info.run_id
    params = [Param(name, str(value)[:_LONGEST]) for name, value in exported.settings.items()]
    for at in range(0, len(params), _MOST):
        client.log_batch(run, params=params[at : at + _MOST])
    metrics = [
        Metric(name, value, _milliseconds(point.at), point.round)
        for point in exported.points()
        for name, value in point.metrics.items()
    ]
    for at in range(0, len(metrics), _MOST):
        client.log_batch(run, metrics=metrics[at : at + _MOST])
    client.log_dict(run, view.job, "job.json")
    said = f"run {run} of experiment {wanted.experiment or view.project}"
    if exported.model is not None:
        client.log_text(run, exported.model.card, "card.md")
        said += _keep_model(client, experiment, run, exported.model, wanted.register)
    client.log_batch(run, tags=[RunTag(_WHOLE, "whole")])
    client.set_terminated(run, _STATES[view.state], _milliseconds(view.updated_at))
    return said


def _experiment(client: MlflowClient, name: str) -> str:
    found = client.get_experiment_by_name(name)
    made: str = client.create_experiment(name) if found is None else found.experiment_id
    return made


def _keep_model(client: MlflowClient, experiment: str, run: str, given: ExportedModel, register: str) -> str:
    """Log a version as a model of MLflow, and register it where that is wanted; says where it is."""
    view = given.view
    tags = {"hanse.version": str(view.version), "hanse.digest": view.digest, "hanse.project": view.project}
    logged = client.create_logged_model(experiment, name="model", source_run_id=run, tags=tags)
    with tempfile.TemporaryDirectory(prefix="hanse-mlflow-") as folder:
        data = Path(folder) / "data"
        data.mkdir()
        shutil.copyfile(given.file, data / FILE)
        shutil.copyfile(record_path(given.file), record_path(data / FILE))
        save_model(
            str(Path(folder) / "model"), loader_module="hanse.exports.flavour", data_path=str(data),
            mlflow_model=Model(run_id=run, model_id=logged.model_id), signature=signature_of(load(given.file)),
            pip_requirements=[f"hanse[torch]=={_release()}"],
        )  # fmt: skip
        client.log_model_artifacts(logged.model_id, str(Path(folder) / "model"))
    client.finalize_logged_model(logged.model_id, "READY")
    client.log_outputs(run, [LoggedModelOutput(logged.model_id, view.lineage.round)])
    if not register:
        return f", with models:/{logged.model_id}"
    try:
        client.create_registered_model(register)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    version = client.create_model_version(
        register, source=logged.artifact_location, run_id=run, tags=tags, description=given.card,
        model_id=logged.model_id,
    )  # fmt: skip
    return f", with models:/{register}/{version.version}"


def signature_of(model: TrainedModel) -> ModelSignature:
    """What a model takes and gives, in MLflow's words.

    Cells are taken as tables have them, and read by the preparation: where MLflow expects numbers, it refuses a column
    of whole ones.
    """
    schema = model.schema
    if isinstance(schema, TabularSchema):
        cells: Any = AnyType
        inputs = Schema([ColSpec(cells(), name, required=False) for name in model.columns])
    elif isinstance(schema, ArraySchema):
        inputs = Schema([TensorSpec(_dtype("float32"), (-1, *schema.shape))])
    else:
        return ModelSignature(params=_PARAMS)
    if schema.task == "regression":
        return ModelSignature(inputs, Schema([TensorSpec(_dtype("float64"), (-1,))]))
    given = _dtype("str") if model.class_names else _dtype("int64")
    return ModelSignature(inputs, Schema([TensorSpec(given, (-1,))]), _PARAMS)


_PARAMS = ParamSchema([ParamSpec("probabilities", DataType.boolean, False)])


def _dtype(name: str) -> Any:
    import numpy as np

    return np.dtype(name)


def _release() -> str:
    from hanse import __version__

    return __version__


def _milliseconds(time: datetime) -> int:
    return round(time.timestamp() * 1000)
