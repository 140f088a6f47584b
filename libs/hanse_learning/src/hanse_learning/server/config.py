"""The `strategy` section of a job file: its form and its checks. Loads no numpy, so that the coordinator can use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Base64Bytes, Field, ValidationError

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.base import Frozen, explain
from hanse_fabric.messages.privacy import PrivacyTerms


class WeightedMeanConfig(Frozen):
    """The mean of the updates, weighted as the job's `weighting` says."""

    name: Literal["weighted_mean"] = "weighted_mean"


class MedianConfig(Frozen):
    """The median of every coordinate; weights do not count."""

    name: Literal["median"]


class TrimmedMeanConfig(Frozen):
    """The mean of every coordinate without the `fraction` smallest and the `fraction` largest values."""

    name: Literal["trimmed_mean"]
    fraction: float = Field(default=0.1, ge=0, lt=0.5)


class NormClippingConfig(Frozen):
    """The weighted mean of updates that are scaled down to the L2 norm `norm` (over all parameters) where longer."""

    name: Literal["norm_clipping"]
    norm: float = Field(gt=0, le=1e12)


class PrivateMeanConfig(Frozen):
    """Central differential privacy: the coordinator puts it in place of `weighted_mean`; it is not for job files.

    Attributes:
        seed: secret, 32 bytes, of this round's noise.
        clip: this round's norm, where it is moved from round to round.
    """

    name: Literal["private_mean"]
    terms: PrivacyTerms
    seed: Base64Bytes
    clip: float | None = Field(default=None, gt=0)


class NoOptimizerConfig(Frozen):
    """The reduced change is added to the model: federated averaging."""

    name: Literal["none"] = "none"


class SgdConfig(Frozen):
    """Server SGD with momentum (FedAvgM)."""

    name: Literal["sgd"]
    lr: float = Field(default=1.0, gt=0)
    momentum: float = Field(default=0.9, ge=0, lt=1)


class AdaptiveConfig(Frozen):
    """FedAdagrad, FedAdam and FedYogi (Reddi et al., Adaptive Federated Optimization).

    `tau` is the degree of adaptivity; the second moments start at tau squared. FedAdagrad ignores `beta2`.
    """

    name: Literal["adam", "yogi", "adagrad"]
    lr: float = Field(default=0.01, gt=0)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.99, ge=0, lt=1)
    tau: float = Field(default=1e-3, ge=1e-12, le=1e12)


ReductionConfig = Annotated[
    WeightedMeanConfig | MedianConfig | TrimmedMeanConfig | NormClippingConfig | PrivateMeanConfig,
    Field(discriminator="name"),
]
OptimizerConfig = Annotated[NoOptimizerConfig | SgdConfig | AdaptiveConfig, Field(discriminator="name")]


class StrategyConfig(Frozen):
    """How updates become the next model. The default is federated averaging."""

    reduction: ReductionConfig = WeightedMeanConfig()
    optimizer: OptimizerConfig = NoOptimizerConfig()


def check_strategy(config: Mapping[str, Any]) -> StrategyConfig:
    """Validate a job's `strategy` section.

    Raises:
        HanseError: INVALID_INPUT naming each field, its value and what was expected.
    """
    try:
        return StrategyConfig.model_validate(dict(config))
    except ValidationError as error:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"strategy: {explain(error)}",
            hint="for example {reduction: {name: weighted_mean}, optimizer: {name: adam, lr: 0.01}}",
        ) from None


def state_names(config: StrategyConfig) -> tuple[str, ...]:
    """The names of the arrays that the strategy keeps from round to round; each is as large as the model."""
    match config.optimizer:
        case AdaptiveConfig():
            return ("momentum", "second_moment")
        case SgdConfig(momentum=momentum) if momentum:
            return ("momentum",)
        case _:
            return ()


def needs_measure(config: StrategyConfig) -> bool:
    """Whether all updates are looked at before any is combined (`reduction.Measured`)."""
    return isinstance(config.reduction, NormClippingConfig | PrivateMeanConfig)
