"""The `model` and `train` sections of a job file: their form and their checks.

Loads neither numpy nor torch, so that the coordinator refuses a bad job when it is submitted.
"""

from hanse_learning.config.algorithms import (
    AlgorithmConfig,
    DittoConfig,
    FedAvgConfig,
    FedDynConfig,
    FedLtnConfig,
    FedProxConfig,
    FedRepConfig,
    FedTanConfig,
    MoonConfig,
    PerFedAvgConfig,
    ScaffoldConfig,
)
from hanse_learning.config.augmentation import AugmentationConfig
from hanse_learning.config.checks import check_learning, check_model, check_train
from hanse_learning.config.combinations import state_rules
from hanse_learning.config.exchange_patience import patience_of
from hanse_learning.config.models import (
    BUILT_IN,
    AlexnetConfig,
    AnyModel,
    CnnConfig,
    DensenetConfig,
    FedLtnCnnConfig,
    KnresnetConfig,
    LenetConfig,
    MlpConfig,
    ResnetConfig,
    ThreeLayerCnnConfig,
    TwoLayerCnnConfig,
    VggConfig,
    has_batch_statistics,
)
from hanse_learning.config.normalization import Normalized
from hanse_learning.config.state import StateRule
from hanse_learning.config.training import (
    ALL_EXAMPLES,
    AdamConfig,
    ClippingConfig,
    CrossEntropyConfig,
    FocalConfig,
    HuberConfig,
    SgdConfig,
    TrainConfig,
)

__all__ = [
    "ALL_EXAMPLES",
    "BUILT_IN",
    "AdamConfig",
    "AlexnetConfig",
    "AlgorithmConfig",
    "AnyModel",
    "AugmentationConfig",
    "ClippingConfig",
    "CnnConfig",
    "CrossEntropyConfig",
    "DensenetConfig",
    "DittoConfig",
    "FedAvgConfig",
    "FedDynConfig",
    "FedLtnCnnConfig",
    "FedLtnConfig",
    "FedProxConfig",
    "FedRepConfig",
    "FedTanConfig",
    "FocalConfig",
    "HuberConfig",
    "KnresnetConfig",
    "LenetConfig",
    "MlpConfig",
    "MoonConfig",
    "Normalized",
    "PerFedAvgConfig",
    "ResnetConfig",
    "ScaffoldConfig",
    "SgdConfig",
    "StateRule",
    "ThreeLayerCnnConfig",
    "TrainConfig",
    "TwoLayerCnnConfig",
    "VggConfig",
    "check_learning",
    "check_model",
    "check_train",
    "has_batch_statistics",
    "patience_of",
    "state_rules",
]
