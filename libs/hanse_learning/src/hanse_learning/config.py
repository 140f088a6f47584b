"""The `model` and `train` sections of a job file: their form and their checks.

Loads neither numpy nor torch, so that the coordinator refuses a bad job when it is submitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, TypeAdapter, ValidationError, model_validator

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.job import Job
from hanse_fabric.messages.base import Frozen, explain
from hanse_fabric.schema import ArraySchema, DataSchema, OpenSchema, TabularSchema

BufferRule = Literal["average", "pool_variance", "keep_newest", "keep_local"]
Activation = Literal["relu", "tanh", "gelu"]
_Width = Annotated[int, Field(ge=1, le=1 << 20)]


class _Built(Frozen):
    """What all architectures have.

    Attributes:
        inputs: shape of one example; None: from the project's schema, or from the data where it says nothing.
        outputs: number of classes, 1 for regression; None: as `inputs`.
        buffers: rules by pattern of buffer name (`*.running_mean`), the first that fits.
    """

    inputs: tuple[_Width, ...] | None = Field(default=None, min_length=1, max_length=4)
    outputs: int | None = Field(default=None, ge=1, le=1 << 20)
    buffers: dict[str, BufferRule] = {}


class LogisticConfig(_Built):
    """Multinomial logistic regression: one linear layer to the classes' logits."""

    name: Literal["logistic"]


class LinearConfig(_Built):
    """Linear regression: one linear layer to one value."""

    name: Literal["linear"]


class MlpConfig(_Built):
    """A perceptron with hidden layers."""

    name: Literal["mlp"]
    hidden: tuple[_Width, ...] = (64,)
    activation: Activation = "relu"
    batch_norm: bool = False
    dropout: float = Field(default=0.0, ge=0, lt=1)


class CnnConfig(_Built):
    """A small convolutional network for images: a block (3x3, activation, halving) per entry of `channels`."""

    name: Literal["cnn"]
    channels: tuple[_Width, ...] = Field(default=(16, 32), min_length=1, max_length=8)
    hidden: _Width = 64
    activation: Activation = "relu"
    batch_norm: bool = False


ModelConfig = Annotated[LogisticConfig | LinearConfig | MlpConfig | CnnConfig, Field(discriminator="name")]
BUILT_IN = frozenset({"logistic", "linear", "mlp", "cnn"})

_Rate = Annotated[float, Field(gt=0, le=1e6, validation_alias=AliasChoices("lr", "learning_rate"))]


class SgdConfig(Frozen):
    """Stochastic gradient descent. `lr` may be written `learning_rate`."""

    name: Literal["sgd"] = "sgd"
    lr: _Rate = 0.05
    momentum: float = Field(default=0.0, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)


class AdamConfig(Frozen):
    """Adam; its moments start anew every round."""

    name: Literal["adam"]
    lr: _Rate = 0.001
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.999, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)


class TrainConfig(Frozen):
    """Local training.

    Attributes:
        epochs: passes over the site's data; 1 where neither it nor `steps` is given.
        steps: mini-batches instead of epochs.
        batch_size: examples in a mini-batch; the last of an epoch may be smaller.
        loss: cross_entropy for classification, mse for regression; None: by the project's schema.
        clip_norm: gradients with a larger L2 norm are scaled down to it.
    """

    epochs: int | None = Field(default=None, ge=1, le=100_000)
    steps: int | None = Field(default=None, ge=1, le=100_000_000)
    batch_size: int = Field(default=32, ge=1, le=1 << 24)
    loss: Literal["cross_entropy", "mse"] | None = None
    optimizer: Annotated[SgdConfig | AdamConfig, Field(discriminator="name")] = SgdConfig()
    clip_norm: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _one_length(self) -> TrainConfig:
        if self.epochs is not None and self.steps is not None:
            raise ValueError("give epochs or steps, not both")
        return self


_MODEL: TypeAdapter[LogisticConfig | LinearConfig | MlpConfig | CnnConfig] = TypeAdapter(ModelConfig)


def check_model(
    config: Mapping[str, Any], schema: DataSchema | None = None
) -> LogisticConfig | LinearConfig | MlpConfig | CnnConfig:
    """Validate a job's `model` section, also against the project's schema where one is given.

    Raises:
        HanseError: INVALID_INPUT naming each field, its value and what was expected.
    """
    try:
        model = _MODEL.validate_python(dict(config))
    except ValidationError as error:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"model: {explain(error)}",
            hint="for example {name: mlp, hidden: [64]}; built in are " + ", ".join(sorted(BUILT_IN)),
        ) from None
    if schema is not None and not isinstance(schema, OpenSchema):
        _fits(model, schema)
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
            f"train: {explain(error)}",
            hint="for example {epochs: 1, batch_size: 32, optimizer: {name: sgd, lr: 0.05}}",
        ) from None
    if train.loss is not None and schema is not None and not isinstance(schema, OpenSchema):
        expected = "cross_entropy" if schema.task == "classification" else "mse"
        if train.loss != expected:
            raise invalid("train.loss", train.loss, f"{expected}, which {schema.task} needs")
    return train


def check_learning(job: Job, schema: DataSchema | None = None) -> None:
    """Validate what a job says about learning. With site code, only a built-in `model` is checked; the rest is its own.

    Raises:
        HanseError: INVALID_INPUT.
    """
    if job.code is None or job.model.get("name") in BUILT_IN:
        check_model(job.model, schema)
    if job.code is None:
        check_train(job.train, schema)


def _fits(model: LogisticConfig | LinearConfig | MlpConfig | CnnConfig, schema: TabularSchema | ArraySchema) -> None:
    if isinstance(model, LogisticConfig) and schema.task != "classification":
        raise invalid("model.name", model.name, "a model for regression", hint="use linear, mlp or cnn")
    if isinstance(model, LinearConfig) and schema.task != "regression":
        raise invalid("model.name", model.name, "a model for classification", hint="use logistic, mlp or cnn")
    shape = (len(schema.features),) if isinstance(schema, TabularSchema) else schema.shape
    if isinstance(model, CnnConfig) and len(shape) not in (2, 3):
        raise invalid("model.name", model.name, f"a model for examples of shape {list(shape)}", hint="use mlp")
    if model.inputs is not None and model.inputs != shape:
        raise invalid("model.inputs", list(model.inputs), f"the schema's {list(shape)}")
    outputs = schema.classes if schema.task == "classification" else 1
    if model.outputs is not None and outputs is not None and model.outputs != outputs:
        raise invalid("model.outputs", model.outputs, f"the schema's {outputs}")
