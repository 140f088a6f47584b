"""Checks of a job's `model` and `train` sections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.explained import explain
from hanse_learning.config.combinations import check_groups, check_training_of
from hanse_learning.config.models import (
    BUILT_IN,
    OF_IMAGES,
    AnyModel,
    LinearConfig,
    LogisticConfig,
    ModelConfig,
    least_side,
)
from hanse_learning.config.schedules import check_schedule
from hanse_learning.config.state import StateRule, own_state_rules
from hanse_learning.config.training import OF_VALUES, TrainConfig
from hanse_learning.pooled.layout import check_metrics
from hanse_schemas.job import Job
from hanse_schemas.metrics import reported
from hanse_schemas.schema import ArraySchema, DataSchema, OpenSchema, TabularSchema, learnable

_MODEL: TypeAdapter[AnyModel] = TypeAdapter(ModelConfig)


def check_model(config: Mapping[str, Any], schema: DataSchema | None = None) -> AnyModel:
    """Validate a job's `model` section, also against the project's schema where one is given.

    Raises:
        HanseError: INVALID_INPUT naming each field, its value and what was expected.
    """
    try:
        model = _MODEL.validate_python(dict(config))
    except ValidationError as error:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"model: {explain(error, ModelConfig)}",
            hint="for example {name: mlp, hidden: [64]}; built in are " + ", ".join(sorted(BUILT_IN)),
        ) from None
    check_groups(model)
    known = learnable(schema) if schema is not None else OpenSchema()
    if not isinstance(known, OpenSchema):
        _fits(model, known)
    return model


def check_train(config: Mapping[str, Any], schema: DataSchema | None = None) -> TrainConfig:
    """Validate a job's `train` section, also against the project's schema where one is given.

    Raises:
        HanseError: INVALID_INPUT naming each field, its value and what was expected.
    """
    body = dict(config)
    if isinstance(body.get("optimizer"), Mapping):
        body["optimizer"] = {"name": "sgd", **body["optimizer"]}
    try:
        train = TrainConfig.model_validate(body)
    except ValidationError as error:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"train: {explain(error, TrainConfig)}",
            hint="for example {epochs: 1, batch_size: 32, optimizer: {name: sgd, lr: 0.05}}",
        ) from None
    known = learnable(schema) if schema is not None else OpenSchema()
    if train.sample_weights and schema is not None and not (isinstance(known, TabularSchema) and known.weight):
        raise invalid("train.sample_weights", True, "false: the project's schema has no column `weight`")
    if train.algorithm.of_classes and getattr(known, "task", "classification") != "classification":
        raise invalid("train.algorithm.name", train.algorithm.name, "an algorithm for regression, as the schema asks")
    named = train.loss_name
    if named is not None and not isinstance(known, OpenSchema):
        if (named in OF_VALUES) == (known.task == "classification"):
            expected = "cross_entropy, binary or focal" if known.task == "classification" else "mse or huber"
            raise invalid("train.loss", named, f"{expected}, which {known.task} needs")
        if named == "binary" and known.classes not in (None, 2):
            raise invalid("train.loss", named, f"cross_entropy or focal: the schema has {known.classes} classes")
        weights = train.class_weights
        if weights is not None and known.classes not in (None, len(weights)):
            raise invalid("train.loss.class_weights", list(weights), f"{known.classes} numbers, one for each class")
    return train


def check_learning(job: Job, schema: DataSchema | None = None) -> None:
    """Validate what a job says about learning. With site code, only a built-in `model` is checked, and of
    another one its `state`; the rest is the code's own.

    Raises:
        HanseError: INVALID_INPUT.
    """
    if has_own_model(job):
        own_state_rules(job.model)
        return
    model = check_model(job.model, schema)
    if job.code is None:
        train = check_train(job.train, schema)
        check_training_of(model, train)
        check_schedule(train.schedule, job.rounds)
        _check_metrics(job, schema)
        _check_stop(job, schema)


def _check_metrics(job: Job, schema: DataSchema | None) -> None:
    """Refuse a metric that evaluations of such data cannot have."""
    known = learnable(schema) if schema is not None else OpenSchema()
    if not isinstance(known, OpenSchema):
        check_metrics(job.evaluate.named, known.task)
        said = job.evaluate.classes
        if said is not None and known.classes is not None and said != known.classes:
            raise invalid("evaluate.classes", said, f"the schema's {known.classes}")


def _check_stop(job: Job, schema: DataSchema | None) -> None:
    """Refuse a metric to stop by that sites with built-in evaluation and such data will not report."""
    known = learnable(schema) if schema is not None else OpenSchema()
    if job.stop is None or isinstance(known, OpenSchema):
        return
    by_site, named = job.secure_aggregation is None, job.evaluate.named
    names = reported(known.task, by_site=by_site, named=named)
    if job.stop.metric not in names:
        raise invalid(
            "stop.metric", job.stop.metric, f"a metric that a run of {known.task} will have: {', '.join(names)}"
        )


def has_own_model(job: Job) -> bool:
    """Whether site code makes the model, too, instead of training a built-in one. Whatever pipelines of the sites' own
    read in the section `model`, they make theirs."""
    return job.code is not None and (job.code.kind == "own" or job.model.get("name") not in BUILT_IN)


def declared_state(job: Job) -> tuple[StateRule, ...]:
    """The rules of the job's `model.state`, whoever makes the model.

    Raises:
        HanseError: INVALID_INPUT.
    """
    return own_state_rules(job.model) if has_own_model(job) else check_model(job.model).state


def _fits(model: AnyModel, schema: TabularSchema | ArraySchema) -> None:
    if isinstance(model, LogisticConfig) and schema.task != "classification":
        raise invalid("model.name", model.name, "a model for regression", hint="use linear, mlp, or one for images")
    if isinstance(model, LinearConfig) and schema.task != "regression":
        raise invalid(
            "model.name", model.name, "a model for classification", hint="use logistic, mlp, or one for images"
        )
    shape = (len(schema.features),) if isinstance(schema, TabularSchema) else schema.shape
    if isinstance(model, OF_IMAGES) and len(shape) not in (2, 3):
        raise invalid("model.name", model.name, f"a model for examples of shape {list(shape)}", hint="use mlp")
    least = least_side(model)
    if isinstance(model, OF_IMAGES) and min(shape[-2:]) < least:
        raise invalid("model.name", model.name, f"a model for images as small as {list(shape[-2:])}; it takes {least}")
    if model.inputs is not None and model.inputs != shape:
        raise invalid("model.inputs", list(model.inputs), f"the schema's {list(shape)}")
    outputs = schema.classes if schema.task == "classification" else 1
    if outputs == 2 and model.outputs == 1:
        return  # one logit for two classes: train.loss binary
    if model.outputs is not None and outputs is not None and model.outputs != outputs:
        raise invalid("model.outputs", model.outputs, f"the schema's {outputs}")
