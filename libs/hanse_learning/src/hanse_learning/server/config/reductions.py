"""The `reduction` of a job's `strategy` section: how the updates of a round become one change of the model."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Base64Bytes, Field

from hanse_fabric.messages.privacy import PrivacyTerms
from hanse_learning.server.config.contract import ReductionConfig

if TYPE_CHECKING:
    from hanse_learning.server.reduction import Reduction

Byzantine = Annotated[int, Field(ge=0, le=10_000)]


class _BuiltIn(ReductionConfig):
    """Hanse's own: built of their settings, in order, by a class of `hanse_learning.server`, which loads numpy."""

    made: ClassVar[str]

    def build(self) -> Reduction:
        """See `ReductionConfig`."""
        module, _, name = self.made.partition(":")
        settings = [getattr(self, field) for field in type(self).model_fields if field != "name"]
        built: Reduction = getattr(import_module(f"hanse_learning.server.{module}"), name)(*settings)
        return built


class _Measuring(_BuiltIn):
    """Those that look at all updates before they combine any."""

    def measures(self) -> bool:
        """See `ReductionConfig`."""
        return True


class WeightedMeanConfig(_BuiltIn):
    """The mean of the updates, weighted as the job's `weighting` says."""

    name: Literal["weighted_mean"] = "weighted_mean"
    made: ClassVar = "weighted_mean:WeightedMean"


class MedianConfig(_BuiltIn):
    """The median of every coordinate; weights do not count."""

    name: Literal["median"]
    made: ClassVar = "order_statistics:Median"


class TrimmedMeanConfig(_BuiltIn):
    """The mean of every coordinate without the `fraction` smallest and the `fraction` largest values.

    Attributes:
        fraction: share of the values that is left out at either end.
    """

    name: Literal["trimmed_mean"]
    fraction: float = Field(default=0.1, ge=0, lt=0.5)
    examples: ClassVar = ({"fraction": 0.2},)
    made: ClassVar = "order_statistics:TrimmedMean"


class GeometricMedianConfig(_Measuring):
    """The point whose weighted distances to the updates sum to least (Pillutla et al., 2022).

    Attributes:
        smoothing: distances below it count as it: what keeps the iteration from dividing by zero.
        iterations: at most, of Weiszfeld's.
    """

    name: Literal["geometric_median"]
    smoothing: float = Field(default=1e-6, gt=0, le=1e6)
    iterations: int = Field(default=100, ge=1, le=10_000)
    made: ClassVar = "geometric_median:GeometricMedian"


class KrumConfig(_Measuring):
    """The update that is nearest to its neighbours (Blanchard et al., 2017); weights do not count.

    Attributes:
        byzantine: how many updates may be hostile; takes 2 byzantine + 3 participants at least.
    """

    name: Literal["krum"]
    byzantine: Byzantine
    examples: ClassVar = ({"byzantine": 1},)
    made: ClassVar = "krum:Krum"

    def least(self) -> int:
        """See `ReductionConfig`."""
        return 2 * self.byzantine + 3


class MultiKrumConfig(_Measuring):
    """The mean of the `keep` updates of the best scores of Krum; weights do not count.

    Attributes:
        byzantine: as in krum.
        keep: how many; None: all but `byzantine`.
    """

    name: Literal["multi_krum"]
    byzantine: Byzantine
    keep: int | None = Field(default=None, ge=1, le=1_000_000)
    examples: ClassVar = ({"byzantine": 2},)
    made: ClassVar = "krum:Krum"

    def least(self) -> int:
        """See `ReductionConfig`."""
        return max(2 * self.byzantine + 3, self.keep or 0)


class BulyanConfig(_Measuring):
    """Of the updates that Krum chooses one after another, the mean of the values nearest to each coordinate's median
    (El Mhamdi et al., 2018); weights do not count.

    Attributes:
        byzantine: how many updates may be hostile; takes 4 byzantine + 3 participants at least.
    """

    name: Literal["bulyan"]
    byzantine: Byzantine
    examples: ClassVar = ({"byzantine": 1},)
    made: ClassVar = "bulyan:Bulyan"

    def least(self) -> int:
        """See `ReductionConfig`."""
        return 4 * self.byzantine + 3


class NormClippingConfig(_Measuring):
    """The weighted mean of updates that are scaled down to the L2 norm `norm` (over all parameters) where longer.

    Attributes:
        norm: the longest L2 norm of an update.
    """

    name: Literal["norm_clipping"]
    norm: float = Field(gt=0, le=1e12)
    examples: ClassVar = ({"norm": 3.0},)
    made: ClassVar = "norm_clipping:NormClipping"


class FedNovaConfig(_BuiltIn):
    """The mean of updates that are divided by how much work is in them (Wang et al., 2020)."""

    name: Literal["fednova"]
    made: ClassVar = "fednova:FedNova"

    def needs(self) -> tuple[str, ...]:
        """See `ReductionConfig`."""
        return ("normalizer",)


class OverlapMeanConfig(_BuiltIn):
    """The weighted mean of every coordinate over the updates that change it: for sites that have pruned (fedltn,
    lotteryfl) or whose codec sends few values.

    Attributes:
        jump_start: whether the run begins with fedltn's jump-start, in whose round the best update alone counts.
    """

    name: Literal["overlap_mean"]
    jump_start: bool = False
    made: ClassVar = "overlap_mean:OverlapMean"

    def needs(self) -> tuple[str, ...]:
        """See `ReductionConfig`."""
        return ("jump_score",) if self.jump_start else ()


class QFedAvgConfig(_Measuring):
    """Sites with a greater loss count for more (Li et al., 2020). q = 0 is weighted_mean.

    Attributes:
        q: how much more; 0 to 5 in the paper.
        lr: of the sites: 1 / lr stands for the Lipschitz constant of the loss.
    """

    name: Literal["qfedavg"]
    q: float = Field(ge=0, le=100)
    lr: float = Field(gt=0, le=1e6)
    examples: ClassVar = ({"q": 1.0, "lr": 0.1},)
    made: ClassVar = "qfedavg:QFedAvg"

    def needs(self) -> tuple[str, ...]:
        """See `ReductionConfig`."""
        return ("first_loss",) if self.q else ()


class PrivateMeanConfig(_Measuring):
    """Central differential privacy: the coordinator puts it in place of `weighted_mean`; it is not for job files.

    Attributes:
        seed: secret, 32 bytes, of this round's noise.
        clip: this round's norm, where it is moved from round to round.
        before: names of the rounds before it, where noise is correlated.
    """

    name: Literal["private_mean"]
    terms: PrivacyTerms
    seed: Base64Bytes
    clip: float | None = Field(default=None, gt=0)
    before: tuple[str, ...] = ()
    examples: ClassVar = ()

    def build(self) -> Reduction:
        """See `ReductionConfig`."""
        from hanse_learning.server.private_mean import PrivateMean

        return PrivateMean.of(self.terms, self.seed, self.clip, self.before)
