"""The `train` section of a job file: local training at the sites."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, model_validator

from hanse_fabric.messages.base import Frozen
from hanse_learning.config.algorithms import AnyAlgorithm, FedAvgConfig
from hanse_learning.config.augmentation import AugmentationConfig
from hanse_learning.config.schedules import ScheduleConfig
from hanse_schemas.resources import Resources

_FULL_BATCH = frozenset({"fedsgd", "fedfgd"})
_ONE_STEP = frozenset({"fedsgd", "fedfgd", "fedsmb"})

_Rate = Annotated[float, Field(gt=0, le=1e6, validation_alias=AliasChoices("lr", "learning_rate"))]


class SgdConfig(Frozen):
    """Stochastic gradient descent. `lr` may be written `learning_rate`.

    Attributes:
        lr: rate of a step.
        momentum: share of the former steps' direction that is kept.
        weight_decay: pull of all parameters towards 0.
        across_rounds: whether the momentum goes on in the site's next round, instead of beginning anew.
    """

    name: Literal["sgd"] = "sgd"
    lr: _Rate = 0.05
    momentum: float = Field(default=0.0, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)
    across_rounds: bool = False


class AdamConfig(Frozen):
    """Adam; its moments start anew every round, or with `across_rounds` go on at the site.

    Attributes:
        lr: rate of a step.
        beta1, beta2: decay of the moments of the gradients, and of their squares.
        weight_decay: pull of all parameters towards 0.
        across_rounds: whether the moments go on in the site's next round.
    """

    name: Literal["adam"]
    lr: _Rate = 0.001
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.999, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)
    across_rounds: bool = False


class ClippingConfig(Frozen):
    """How single examples' gradients are clipped in private training (dp_sgd) to `privacy.clip`.

    Attributes:
        per: all parameters together, or each layer to an equal share, so that together they keep to the clip.
        rule: `flat`: longer gradients are scaled down to the clip. `automatic`: all are scaled to nearly the clip,
            g clip / (|g| + gamma) (Bu et al., 2023), so that the clip and the rate are one number.
        gamma: of `automatic`: what keeps small gradients small.
    """

    per: Literal["model", "layer"] = "model"
    rule: Literal["flat", "automatic"] = "flat"
    gamma: float = Field(default=0.01, gt=0, le=1e6)


_Weights = Annotated[tuple[Annotated[float, Field(gt=0, le=1e6)], ...], Field(min_length=2, max_length=10_000)]


class FocalConfig(Frozen):
    """Focal loss (Lin et al., 2017): cross-entropy in which well-classified examples count less.

    Attributes:
        gamma: how much less well-classified examples count; 0: not.
        class_weights: what an example of each class counts, by the classes' numbers; None: one. `balanced`: so much
            that all classes count alike over all sites, which a run finds before its first round.
    """

    name: Literal["focal"]
    gamma: float = Field(default=2.0, ge=0, le=100)
    class_weights: _Weights | Literal["balanced"] | None = None


class CrossEntropyConfig(Frozen):
    """Cross-entropy, of one output where it is `binary`, in which examples of some classes count more.

    A mean is over the number of examples, not over their weights, so that the sites' means are that of the pooled data.

    Attributes:
        class_weights: as of the focal loss.
    """

    name: Literal["cross_entropy", "binary"]
    class_weights: _Weights | Literal["balanced"]


class HuberConfig(Frozen):
    """Half the squared error up to `delta`, and beyond it linear (Huber, 1964), in the target's unit: outliers count
    less.

    Attributes:
        delta: the error from which on the loss is linear, in the target's unit.
    """

    name: Literal["huber"]
    delta: float = Field(default=1.0, gt=0, le=1e9)


Loss = Literal["cross_entropy", "binary", "mse"]
NamedLoss = Annotated[FocalConfig | CrossEntropyConfig | HuberConfig, Field(discriminator="name")]
OF_CLASSES = frozenset({"cross_entropy", "binary", "focal"})
"""Names of the losses of classification."""
OF_VALUES = frozenset({"mse", "huber"})
"""Names of the losses of regression."""
ALL_EXAMPLES = 1 << 24
"""`batch_size: all`: every example of a site in one batch."""


class TrainConfig(Frozen):
    """Local training.

    Attributes:
        optimizer: of a site's steps.
        algorithm: what a site does; plain local training by default.
        epochs: passes over the site's data; 1 where neither it nor `steps` is given.
        steps: mini-batches instead of epochs.
        batch_size: examples in a mini-batch, or `all`; the last of an epoch may be smaller.
        loss: cross_entropy, binary (two classes, one output) or focal for classification, mse or huber for regression;
            None: by the project's schema.
        sample_weights: whether an example's loss is times its weight, which the schema's column `weight` has.
        clip_norm: gradients with a larger L2 norm are scaled down to it.
        clipping: of single examples' gradients, with dp_sgd.
        augmentation: random changes of images.
        weights_average: with dp_sgd, the site's answer is the moving average m of its weights w over its steps t
            from 1 (De et al., 2022): m <- a m + (1 - a) w, with a = min(weights_average, (1 + t) / (10 + t)).
        schedule: how the rate rises and falls.
        resources: what the sites' devices must be.
    """

    algorithm: AnyAlgorithm = FedAvgConfig()
    epochs: int | None = Field(default=None, ge=1, le=100_000)
    steps: int | None = Field(default=None, ge=1, le=100_000_000)
    batch_size: int = Field(default=32, ge=1, le=ALL_EXAMPLES)
    loss: Loss | NamedLoss | None = None
    sample_weights: bool = False
    optimizer: Annotated[SgdConfig | AdamConfig, Field(discriminator="name")] = SgdConfig()
    clip_norm: float | None = Field(default=None, gt=0)
    clipping: ClippingConfig | None = None
    augmentation: AugmentationConfig | None = None
    weights_average: float | None = Field(default=None, gt=0, lt=1)
    schedule: ScheduleConfig | None = None
    resources: Resources = Resources()

    @model_validator(mode="before")
    @classmethod
    def _presets(cls, body: Any) -> Any:
        """`batch_size: all`, and what the presets say without being told."""
        if not isinstance(body, Mapping):
            return body
        filled = dict(body)
        algorithm = filled.get("algorithm")
        if isinstance(algorithm, str):
            filled["algorithm"] = algorithm = {"name": algorithm}
        name = algorithm.get("name") if isinstance(algorithm, Mapping) else None
        if not isinstance(name, str):
            name = None
        if name in _FULL_BATCH:
            filled.setdefault("batch_size", "all")
        if name in _ONE_STEP and filled.get("epochs") is None:
            filled.setdefault("steps", 1)
        if filled.get("batch_size") == "all":
            filled["batch_size"] = ALL_EXAMPLES
        return filled

    @model_validator(mode="after")
    def _as_named(self) -> TrainConfig:
        name = self.algorithm.name
        if name in _ONE_STEP and self.steps != 1:
            raise ValueError(f"algorithm {name} is one step a round: leave epochs out, and steps at 1")
        if name in _FULL_BATCH and self.batch_size != ALL_EXAMPLES:
            raise ValueError(f"algorithm {name} takes all examples: leave batch_size out")
        if name == "fedcmb" and (self.steps or 1) < 2:
            raise ValueError("algorithm fedcmb takes a constant number of mini-batches, two or more: give steps")
        if self.optimizer.across_rounds and not self.algorithm.moments_go_on:
            raise ValueError(f"optimizer.across_rounds: moments of {name} begin anew in every round; leave it out")
        if self.algorithm.needs_sgd and not isinstance(self.optimizer, SgdConfig):
            raise ValueError(f"algorithm {name} needs optimizer sgd, {self.optimizer.name} is given")
        return self

    @property
    def loss_name(self) -> str | None:
        """Of the loss; None: by the project's schema."""
        return self.loss if self.loss is None or isinstance(self.loss, str) else self.loss.name

    @property
    def class_weights(self) -> tuple[float, ...] | None:
        """What an example of each class counts; None: one, or what is to be found."""
        found = getattr(self.loss, "class_weights", None)
        return None if self.balanced else found

    @property
    def balanced(self) -> bool:
        """Whether the weights of classes are still to be found."""
        return getattr(self.loss, "class_weights", None) == "balanced"

    @model_validator(mode="after")
    def _one_length(self) -> TrainConfig:
        if self.epochs is not None and self.steps is not None:
            raise ValueError("give epochs or steps, not both")
        return self
