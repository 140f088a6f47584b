"""The `strategy` section of a job file: its form and its checks. Loads no numpy, so that the coordinator can use it."""

from hanse_learning.server.config.contract import ReductionConfig
from hanse_learning.server.config.optimizers import (
    AdaptiveConfig,
    FedDynConfig,
    NoOptimizerConfig,
    OptimizerConfig,
    SgdConfig,
)
from hanse_learning.server.config.reductions import (
    BulyanConfig,
    FedNovaConfig,
    GeometricMedianConfig,
    KrumConfig,
    MedianConfig,
    MultiKrumConfig,
    NormClippingConfig,
    PrivateMeanConfig,
    QFedAvgConfig,
    TrimmedMeanConfig,
    WeightedMeanConfig,
)
from hanse_learning.server.config.strategy import (
    SignMaskConfig,
    StrategyConfig,
    check_strategy,
    state_names,
)

__all__ = [
    "AdaptiveConfig",
    "BulyanConfig",
    "FedDynConfig",
    "FedNovaConfig",
    "GeometricMedianConfig",
    "KrumConfig",
    "MedianConfig",
    "MultiKrumConfig",
    "NoOptimizerConfig",
    "NormClippingConfig",
    "OptimizerConfig",
    "PrivateMeanConfig",
    "QFedAvgConfig",
    "ReductionConfig",
    "SgdConfig",
    "SignMaskConfig",
    "StrategyConfig",
    "TrimmedMeanConfig",
    "WeightedMeanConfig",
    "check_strategy",
    "state_names",
]
