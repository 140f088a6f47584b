"""The `reduction` of a job's `strategy` section: how the updates of a round become one change of the model."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Base64Bytes, Field

from hanse_fabric.messages.base import Frozen
from hanse_fabric.messages.privacy import PrivacyTerms

Byzantine = Annotated[int, Field(ge=0, le=10_000)]


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


class GeometricMedianConfig(Frozen):
    """The point whose weighted distances to the updates sum to least (Pillutla et al., 2022).

    Attributes:
        smoothing: distances below it count as it: what keeps the iteration from dividing by zero.
        iterations: at most, of Weiszfeld's.
    """

    name: Literal["geometric_median"]
    smoothing: float = Field(default=1e-6, gt=0, le=1e6)
    iterations: int = Field(default=100, ge=1, le=10_000)


class KrumConfig(Frozen):
    """The update that is nearest to its neighbours (Blanchard et al., 2017); weights do not count.

    Attributes:
        byzantine: how many updates may be hostile; takes 2 byzantine + 3 participants at least.
    """

    name: Literal["krum"]
    byzantine: Byzantine


class MultiKrumConfig(Frozen):
    """The mean of the `keep` updates of the best scores of Krum; weights do not count.

    Attributes:
        byzantine: as in krum.
        keep: how many; None: all but `byzantine`.
    """

    name: Literal["multi_krum"]
    byzantine: Byzantine
    keep: int | None = Field(default=None, ge=1, le=1_000_000)


class BulyanConfig(Frozen):
    """Of the updates that Krum chooses one after another, the mean of the values nearest to each coordinate's median
    (El Mhamdi et al., 2018); weights do not count.

    Attributes:
        byzantine: how many updates may be hostile; takes 4 byzantine + 3 participants at least.
    """

    name: Literal["bulyan"]
    byzantine: Byzantine


class NormClippingConfig(Frozen):
    """The weighted mean of updates that are scaled down to the L2 norm `norm` (over all parameters) where longer."""

    name: Literal["norm_clipping"]
    norm: float = Field(gt=0, le=1e12)


class FedNovaConfig(Frozen):
    """The mean of updates that are divided by how much work is in them (Wang et al., 2020)."""

    name: Literal["fednova"]


class QFedAvgConfig(Frozen):
    """Sites with a greater loss count for more (Li et al., 2020). q = 0 is weighted_mean.

    Attributes:
        q: how much more; 0 to 5 in the paper.
        lr: of the sites: 1 / lr stands for the Lipschitz constant of the loss.
    """

    name: Literal["qfedavg"]
    q: float = Field(ge=0, le=100)
    lr: float = Field(gt=0, le=1e6)


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


ReductionConfig = Annotated[
    WeightedMeanConfig
    | MedianConfig
    | TrimmedMeanConfig
    | GeometricMedianConfig
    | KrumConfig
    | MultiKrumConfig
    | BulyanConfig
    | NormClippingConfig
    | FedNovaConfig
    | QFedAvgConfig
    | PrivateMeanConfig,
    Field(discriminator="name"),
]

MEASURED = (
    GeometricMedianConfig,
    KrumConfig,
    MultiKrumConfig,
    BulyanConfig,
    NormClippingConfig,
    QFedAvgConfig,
    PrivateMeanConfig,
)
"""Those that look at all updates before they combine any."""
