"""The `model` and `train` sections of a job file: their form and their checks.

Loads neither numpy nor torch, so that the coordinator refuses a bad job when it is submitted.
"""

from hanse_learning.config.checks import check_learning, check_model, check_train
from hanse_learning.config.models import (
    BUILT_IN,
    AnyModel,
    CnnConfig,
    LenetConfig,
    LinearConfig,
    LogisticConfig,
    MlpConfig,
    ModelConfig,
    ResnetConfig,
    ThreeLayerCnnConfig,
    TwoLayerCnnConfig,
    VggConfig,
    has_batch_statistics,
)
from hanse_learning.config.training import AdamConfig, SgdConfig, TrainConfig

__all__ = [
    "BUILT_IN",
    "AdamConfig",
    "AnyModel",
    "CnnConfig",
    "LenetConfig",
    "LinearConfig",
    "LogisticConfig",
    "MlpConfig",
    "ModelConfig",
    "ResnetConfig",
    "SgdConfig",
    "ThreeLayerCnnConfig",
    "TrainConfig",
    "TwoLayerCnnConfig",
    "VggConfig",
    "check_learning",
    "check_model",
    "check_train",
    "has_batch_statistics",
]
