"""The `strategy` section of a job file: its form, and what can be told from it alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationError

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.base import Frozen
from hanse_fabric.messages.explained import explain
from hanse_learning.server.config.contract import AnyOptimizer, AnyReduction, OptimizerConfig, ReductionConfig
from hanse_learning.server.config.optimizers import NoOptimizerConfig
from hanse_learning.server.config.reductions import WeightedMeanConfig

_EXAMPLE = "for example {reduction: {name: weighted_mean}, optimizer: {name: adam, lr: 0.01}}"


class SignMaskConfig(Frozen):
    """Gradient-masked averaging (Tenison et al., 2023): coordinates in which the updates' signs disagree move less.

    Attributes:
        tau: agreement (share that agrees minus share that does not) from which on a coordinate moves fully; 0 masks
            nothing, 1 lets only unanimous coordinates move fully.
    """

    tau: float = Field(default=0.4, ge=0, le=1)


class StrategyConfig(Frozen):
    """How updates become the next model. The default is federated averaging.

    Attributes:
        reduction: of the updates to one change.
        sign_mask: applied to what the optimizer makes of it; None: nothing is masked.
        optimizer: of the server.
    """

    reduction: AnyReduction = WeightedMeanConfig()
    sign_mask: SignMaskConfig | None = None
    optimizer: AnyOptimizer = NoOptimizerConfig()


def check_strategy(config: Mapping[str, Any] | ReductionConfig | OptimizerConfig) -> StrategyConfig:
    """Validate a job's `strategy` section, or that of a reduction or a server optimizer alone.

    Raises:
        HanseError: INVALID_INPUT naming each field, its value and what was expected.
    """
    if isinstance(config, ReductionConfig):
        return StrategyConfig(reduction=config)
    if isinstance(config, OptimizerConfig):
        return StrategyConfig(optimizer=config)
    if not isinstance(config, Mapping):
        raise invalid("strategy", config, "a job's section, or settings such as MedianConfig()", hint=_EXAMPLE)
    try:
        return StrategyConfig.model_validate(dict(config))
    except ValidationError as error:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"strategy: {explain(error, StrategyConfig)}",
            hint=_EXAMPLE,
        ) from None


def state_names(config: StrategyConfig) -> tuple[str, ...]:
    """The names of the arrays that the strategy keeps from round to round; each is as large as the model."""
    return tuple(config.optimizer.state)
