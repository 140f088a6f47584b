"""The `optimizer` of a job's `strategy` section: how the reduced change moves the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from hanse_learning.server.config.contract import OptimizerConfig

if TYPE_CHECKING:
    from hanse_learning.server.optimizers import ServerOptimizer


class NoOptimizerConfig(OptimizerConfig):
    """The reduced change is added to the model: federated averaging."""

    name: Literal["none"] = "none"

    def build(self) -> ServerOptimizer:
        """See `OptimizerConfig`."""
        from hanse_learning.server.optimizers import Plain

        return Plain()


class SgdConfig(OptimizerConfig):
    """Server SGD with momentum (FedAvgM).

    Attributes:
        lr: rate of the server's step.
        momentum: share of the former steps' direction that is kept.
        weight_decay: this share of the model is taken off the reduced change, before momentum. For training on the
            pooled data with a decay of d, it is the sites' rate times d.
    """

    name: Literal["sgd"]
    lr: float = Field(default=1.0, gt=0)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0, lt=1)

    @property
    def state(self) -> Mapping[str, float]:
        """See `OptimizerConfig`."""
        return {"momentum": 0.0} if self.momentum else {}

    def build(self) -> ServerOptimizer:
        """See `OptimizerConfig`."""
        from hanse_learning.server.optimizers import Sgd

        return Sgd(self.lr, self.momentum, self.weight_decay)


class AdaptiveConfig(OptimizerConfig):
    """FedAdagrad, FedAdam and FedYogi (Reddi et al., Adaptive Federated Optimization).

    `tau` is the degree of adaptivity; the second moments start at tau squared. FedAdagrad ignores `beta2`.

    Attributes:
        lr: rate of the server's step.
        beta1, beta2: decay of the moments of the changes, and of their squares.
        tau: added to the roots of the second moments: how adaptive the step is.
        flower_compat: as Flower has them: second moments start at 0, adam's rate is corrected for the moments' bias,
            and adagrad ignores `beta1`.
    """

    name: Literal["adam", "yogi", "adagrad"]
    lr: float = Field(default=0.01, gt=0)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.99, ge=0, lt=1)
    tau: float = Field(default=1e-3, ge=1e-12, le=1e12)
    flower_compat: bool = False

    @property
    def state(self) -> Mapping[str, float]:
        """See `OptimizerConfig`."""
        return {"momentum": 0.0, "second_moment": 0.0 if self.flower_compat else self.tau**2}

    def build(self) -> ServerOptimizer:
        """See `OptimizerConfig`."""
        from hanse_learning.server.optimizers import Adaptive

        return Adaptive(self.name, self.lr, self.beta1, self.beta2, self.tau, self.flower_compat)


class LookAheadConfig(OptimizerConfig):
    """FedLTN's server (Mugunthan, 2022): between the mean model and where the last round was going. It is `sgd` with
    rate tau and momentum (1 - tau) momentum.

    Attributes:
        tau: share of the mean model.
        momentum: how far the last round's step is taken again.
        jump_start: whether the first round is fedltn's jump-start, whose model is taken as it is.
    """

    name: Literal["look_ahead"]
    tau: float = Field(default=0.5, gt=0, le=1)
    momentum: float = Field(default=0.5, ge=0, le=1)
    jump_start: bool = False

    @property
    def state(self) -> Mapping[str, float]:
        """See `OptimizerConfig`."""
        return {"momentum": 0.0} if (1 - self.tau) * self.momentum else {}

    def build(self) -> ServerOptimizer:
        """See `OptimizerConfig`."""
        from hanse_learning.server.look_ahead import LookAhead

        return LookAhead(self.tau, self.momentum, self.jump_start)


class FedDynConfig(OptimizerConfig):
    """The server's half of FedDyn (Acar et al., 2021): the mean model, moved on by all changes so far.

    Attributes:
        alpha: that of the sites' algorithm `feddyn`.
        share: of all participants, how many take part in a round.
    """

    name: Literal["feddyn"]
    alpha: float = Field(default=0.01, gt=0, le=1e6)
    share: float = Field(default=1.0, gt=0, le=1)

    @property
    def state(self) -> Mapping[str, float]:
        """See `OptimizerConfig`."""
        return {"correction": 0.0}

    def build(self) -> ServerOptimizer:
        """See `OptimizerConfig`."""
        from hanse_learning.server.feddyn import FedDyn

        return FedDyn(self.share)
