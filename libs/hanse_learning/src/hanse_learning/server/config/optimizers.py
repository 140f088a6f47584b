"""The `optimizer` of a job's `strategy` section: how the reduced change moves the model."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hanse_fabric.messages.base import Frozen


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

    Attributes:
        flower_compat: as Flower has them: second moments start at 0, adam's rate is corrected for the moments' bias,
            and adagrad ignores `beta1`.
    """

    name: Literal["adam", "yogi", "adagrad"]
    lr: float = Field(default=0.01, gt=0)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.99, ge=0, lt=1)
    tau: float = Field(default=1e-3, ge=1e-12, le=1e12)
    flower_compat: bool = False


class FedDynConfig(Frozen):
    """The server's half of FedDyn (Acar et al., 2021): the mean model, moved on by all changes so far.

    Attributes:
        alpha: that of the sites' algorithm `feddyn`.
        share: of all participants, how many take part in a round.
    """

    name: Literal["feddyn"]
    alpha: float = Field(default=0.01, gt=0, le=1e6)
    share: float = Field(default=1.0, gt=0, le=1)


OptimizerConfig = Annotated[NoOptimizerConfig | SgdConfig | AdaptiveConfig | FedDynConfig, Field(discriminator="name")]
