"""The `algorithm` of a job's `train` section: what a site does between the model it gets and the update it sends."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hanse_fabric.messages.base import Frozen


class FedAvgConfig(Frozen):
    """Plain local training (McMahan et al., 2017). The other names are presets of it, held to what they mean:

    fedsgd, fedfgd: one step over all of the site's examples; fedsmb: one mini-batch; fedcmb: the same number of
    mini-batches, more than one, at every site (Nasirigerdeh, Rueckert and Kaissis, 2023).
    """

    name: Literal["fedavg", "fedsgd", "fedfgd", "fedsmb", "fedcmb"] = "fedavg"


class FedProxConfig(Frozen):
    """A pull of `mu` towards the received model, with every step (Li et al., 2020). mu = 0 is fedavg."""

    name: Literal["fedprox"]
    mu: float = Field(default=0.01, ge=0, le=1e6)


class ScaffoldConfig(Frozen):
    """Control variates against the drift of sites (Karimireddy et al., 2020).

    Attributes:
        option: how a site renews its variate: `gradient` (i: the gradient at the received model) or `drift` (ii: from
            what its steps have done).
    """

    name: Literal["scaffold"]
    option: Literal["gradient", "drift"] = "drift"


class FedDynConfig(Frozen):
    """A dynamic regularizer (Acar et al., 2021); the server's optimizer must be feddyn with the same alpha."""

    name: Literal["feddyn"]
    alpha: float = Field(default=0.01, gt=0, le=1e6)


class MoonConfig(Frozen):
    """Model-contrastive training (Li et al., 2021): representations near the received model's, away from the site's
    former ones. The representation is what the output layer takes."""

    name: Literal["moon"]
    mu: float = Field(default=1.0, ge=0, le=1e6)
    temperature: float = Field(default=0.5, gt=0, le=1e3)


class DittoConfig(Frozen):
    """A personal model beside the shared one, pulled towards it (Li et al., 2021). Evaluated is the personal one.

    Attributes:
        pull: of the personal model towards the received one; 0 is training alone.
        epochs, steps: of the personal model; as many as of the shared one where neither is given.
    """

    name: Literal["ditto"]
    pull: float = Field(default=0.1, ge=0, le=1e6)
    epochs: int | None = Field(default=None, ge=1, le=100_000)
    steps: int | None = Field(default=None, ge=1, le=100_000_000)


class FedRepConfig(Frozen):
    """First the local entries alone, then the global ones alone (Collins et al., 2021). Which entries are local,
    `model.state` says; without it, the output layer.

    Attributes:
        head_epochs: over the local entries; the train section's epochs or steps are the global ones'.
    """

    name: Literal["fedrep"]
    head_epochs: int = Field(default=1, ge=1, le=100_000)


class PerFedAvgConfig(Frozen):
    """A model that each site adapts in few steps (Fallah et al., 2020). alpha = 0 is fedavg.

    Attributes:
        alpha: rate of the inner step.
        variant: `fo` leaves the Hessian out; `hf` takes a finite difference of gradients for it.
        adapt_steps: of a site before it evaluates.
    """

    name: Literal["per_fedavg"]
    alpha: float = Field(default=0.01, ge=0, le=1e6)
    variant: Literal["fo", "hf"] = "fo"
    adapt_steps: int = Field(default=1, ge=0, le=10_000)


class WeightedAccumulationConfig(Frozen):
    """Gradients summed with weights that fall from step to step (Nasirigerdeh, Rueckert and Kaissis, 2023, (8))."""

    name: Literal["weighted_accumulation"]


class FedTanConfig(Frozen):
    """Batch statistics and their gradients, averaged over all sites in the first local step (Wang, Shi, Chang, 2023).

    Attributes:
        backward: whether the gradients are, too; without, only the forward part (a baseline that is not enough).
        patience: seconds that a site waits in each sum for the others; then the step is done again without those who
            have not come.

    A round's step equals one on all sites' batches together where the model's mean has the batches' weights: with
    `weighting: examples` and `batch_size: all`, or `weighting: uniform` and batches of one size.
    """

    name: Literal["fedtan"]
    backward: bool = True
    patience: float = Field(default=60.0, ge=1, le=3600)


AnyAlgorithm = (
    FedAvgConfig
    | FedProxConfig
    | ScaffoldConfig
    | FedDynConfig
    | MoonConfig
    | DittoConfig
    | FedRepConfig
    | PerFedAvgConfig
    | WeightedAccumulationConfig
    | FedTanConfig
)
AlgorithmConfig = Annotated[AnyAlgorithm, Field(discriminator="name")]

EXTRAS: dict[str, tuple[str, ...]] = {"scaffold": ("control",)}
"""Further arrays in the model's layout that an algorithm exchanges beside it, by algorithm."""


EXCHANGING = frozenset({"fedtan"})
"""Algorithms whose sites sum among each other in the middle of a task."""


def extras_of(algorithm: AnyAlgorithm) -> tuple[str, ...]:
    """Names of the extras that travel with every task and result of the algorithm."""
    return EXTRAS.get(algorithm.name, ())
