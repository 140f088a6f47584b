"""The `train` section of a job file: local training at the sites."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AliasChoices, Field, model_validator

from hanse_fabric.messages.base import Frozen

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
