"""The `strategy` section of a job file: its form and its checks. Loads no numpy, so that the coordinator can use it."""

from hanse_learning.server.config.contract import OptimizerConfig, ReductionConfig
from hanse_learning.server.config.optimizers import (
    AdaptiveConfig,
    FedDynConfig,
    NoOptimizerConfig,
    SgdConfig,
)
from hanse_learning.server.config.reductions import (
    WeightedMeanConfig,
)
from hanse_learning.server.config.strategy import (
    StrategyConfig,
    check_strategy,
    state_names,
)

__all__ = [
    "AdaptiveConfig",
    "FedDynConfig",
    "NoOptimizerConfig",
    "OptimizerConfig",
    "ReductionConfig",
    "SgdConfig",
    "StrategyConfig",
    "WeightedMeanConfig",
    "check_strategy",
    "state_names",
]
