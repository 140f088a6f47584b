"""The `algorithm` of a job's `train` section: what a site does between the model it gets and the update it sends."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, SerializeAsAny

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.base import Frozen
from hanse_fabric.plugin_methods import require_count, require_method, require_texts
from hanse_fabric.plugins import ALGORITHMS
from hanse_learning.config.named import by_name

if TYPE_CHECKING:
    from hanse_learning.site.session import Session, Trained


class AlgorithmConfig(Frozen):
    """A site algorithm: its settings as a job names them, what it needs, and what it does at a site.

    A package offers a subclass under the entry-point group `hanse.algorithms`, as Hanse does with its own; see
    docs/extending.md. Its module loads no torch: the hub reads settings, too. `train` and `adapt` run at the sites.

    Attributes:
        name: in a job, a `Literal` with a default; the entry point's name.
        extras: names of further arrays in the model's layout that each site sends a change of, and gets the mean of.
        normalized: whether `normalizer` is in what `train` tells, so that FedNova knows the work in an update.
        moments_go_on: whether the optimizer's moments may go on in the site's next round.
        needs_sgd: whether the local optimizer must be `sgd`.
        needs_mean: whether the server must take the weighted mean.
        divides: whether a site's processes may take its steps together, each with a share of the batch: where a step's
            gradient is a mean over the batch, and nothing else depends on the batch.
        of_classes: whether it is for classification alone.
    """

    name: str
    extras: ClassVar[tuple[str, ...]] = ()
    normalized: ClassVar[bool] = False
    moments_go_on: ClassVar[bool] = False
    needs_sgd: ClassVar[bool] = False
    needs_mean: ClassVar[bool] = False
    divides: ClassVar[bool] = False
    of_classes: ClassVar[bool] = False

    def train(self, session: Session) -> Trained:
        """Train the session's module in place.

        Raises:
            HanseError: INVALID_INPUT where the algorithm has no training.
        """
        del session
        raise self._untrained()

    def adapt(self, session: Session) -> str:
        """Make the module, with the received values, the one that this site would use. A note for the owner, or ""."""
        del session
        return ""

    def require_whole(self) -> None:
        """Check that the class has what a job will ask of it, for those that are not Hanse's own.

        Raises:
            HanseError: INVALID_INPUT where `train` is missing or cannot be called, or an attribute is something else.
        """
        title = f"algorithm {self.name}"
        if type(self).train is AlgorithmConfig.train:
            raise self._untrained()
        require_method(title, self, "train", "session")
        require_method(title, self, "adapt", "session")
        require_texts(f"{title}: extras", self.extras)
        require_count(f"{title}: shared_from()", self.shared_from())

    def _untrained(self) -> HanseError:
        return HanseError(
            ErrorCode.INVALID_INPUT, f"algorithm {self.name}: {type(self).__name__} has no train(session)",
            hint="docs/extending.md says what an algorithm is",
        )  # fmt: skip

    def personal(self) -> bool:
        """Whether a site uses another model than the received one."""
        return type(self).adapt is not AlgorithmConfig.adapt

    def shared_from(self) -> int:
        """The first round whose model is all sites'. Those before may be one site's own: no version is made of them."""
        return 1


class _BuiltIn(AlgorithmConfig):
    """Hanse's own: their training is in a module of `hanse_learning.site.algorithms`, which loads torch."""

    module: ClassVar[str]

    def train(self, session: Session) -> Trained:
        """See `AlgorithmConfig`."""
        made: Trained = import_module(f"hanse_learning.site.algorithms.{self.module}").train(session)
        return made


class _Adapting(_BuiltIn):
    """Those with a personal model."""

    def adapt(self, session: Session) -> str:
        """See `AlgorithmConfig`."""
        note: str = import_module(f"hanse_learning.site.algorithms.{self.module}").adapt(session)
        return note


class FedAvgConfig(_BuiltIn):
    """Plain local training (McMahan et al., 2017). The other names are presets of it, held to what they mean:

    fedsgd, fedfgd: one step over all of the site's examples; fedsmb: one mini-batch; fedcmb: the same number of
    mini-batches, more than one, at every site (Nasirigerdeh, Rueckert and Kaissis, 2023).
    """

    name: Literal["fedavg", "fedsgd", "fedfgd", "fedsmb", "fedcmb"] = "fedavg"
    module: ClassVar = "plain"
    divides: ClassVar = True
    normalized: ClassVar = True
    moments_go_on: ClassVar = True


class FedProxConfig(_BuiltIn):
    """A pull of `mu` towards the received model, with every step (Li et al., 2020). mu = 0 is fedavg.

    Attributes:
        mu: strength of the pull.
    """

    name: Literal["fedprox"]
    mu: float = Field(default=0.01, ge=0, le=1e6)
    module: ClassVar = "fedprox"
    divides: ClassVar = True
    normalized: ClassVar = True
    moments_go_on: ClassVar = True


class ScaffoldConfig(_BuiltIn):
    """Control variates against the drift of sites (Karimireddy et al., 2020).

    Attributes:
        option: how a site renews its variate: `gradient` (i: the gradient at the received model) or `drift` (ii: from
            what its steps have done).
    """

    name: Literal["scaffold"]
    option: Literal["gradient", "drift"] = "drift"
    module: ClassVar = "scaffold"
    divides: ClassVar = True
    needs_sgd: ClassVar = True
    needs_mean: ClassVar = True
    extras: ClassVar = ("control",)


class FedDynConfig(_BuiltIn):
    """A dynamic regularizer (Acar et al., 2021); the server's optimizer must be feddyn with the same alpha.

    Attributes:
        alpha: strength of the regularizer.
    """

    name: Literal["feddyn"]
    alpha: float = Field(default=0.01, gt=0, le=1e6)
    module: ClassVar = "feddyn"
    divides: ClassVar = True
    needs_sgd: ClassVar = True
    needs_mean: ClassVar = True


class MoonConfig(_BuiltIn):
    """Model-contrastive training (Li et al., 2021): representations near the received model's, away from the site's
    former ones. The representation is what the output layer takes.

    Attributes:
        mu: weight of the contrastive loss beside the task's.
        temperature: of the similarities in it.
    """

    name: Literal["moon"]
    mu: float = Field(default=1.0, ge=0, le=1e6)
    temperature: float = Field(default=0.5, gt=0, le=1e3)
    module: ClassVar = "moon"
    divides: ClassVar = True


class DittoConfig(_Adapting):
    """A personal model beside the shared one, pulled towards it (Li et al., 2021). Evaluated is the personal one.

    Attributes:
        pull: of the personal model towards the received one; 0 is training alone.
        epochs, steps: of the personal model; as many as of the shared one where neither is given.
    """

    name: Literal["ditto"]
    pull: float = Field(default=0.1, ge=0, le=1e6)
    epochs: int | None = Field(default=None, ge=1, le=100_000)
    steps: int | None = Field(default=None, ge=1, le=100_000_000)
    module: ClassVar = "ditto"
    divides: ClassVar = True


class FedRepConfig(_BuiltIn):
    """First the local entries alone, then the global ones alone (Collins et al., 2021). Which entries are local,
    `model.state` says; without it, the output layer.

    Attributes:
        head_epochs: over the local entries; the train section's epochs or steps are the global ones'.
    """

    name: Literal["fedrep"]
    head_epochs: int = Field(default=1, ge=1, le=100_000)
    module: ClassVar = "fedrep"
    divides: ClassVar = True


class PerFedAvgConfig(_Adapting):
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
    module: ClassVar = "per_fedavg"
    needs_sgd: ClassVar = True


class WeightedAccumulationConfig(_BuiltIn):
    """Gradients summed with weights that fall from step to step (Nasirigerdeh, Rueckert and Kaissis, 2023, (8))."""

    name: Literal["weighted_accumulation"]
    module: ClassVar = "accumulation"
    divides: ClassVar = True
    needs_sgd: ClassVar = True


class FedTanConfig(_BuiltIn):
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
    module: ClassVar = "fedtan"
    needs_sgd: ClassVar = True
    needs_mean: ClassVar = True


class _Pruning(_Adapting):
    """Those in which each site keeps a lottery ticket of its own."""

    module: ClassVar = "lottery"
    of_classes: ClassVar = True


class JumpStartConfig(Frozen):
    """What each site does by itself before the others' models come to it.

    Attributes:
        rounds: of training and pruning, all within the run's first round.
        target: share of the weights that are pruned in it, at most.
    """

    rounds: int = Field(ge=1, le=10_000)
    target: float = Field(default=0.3, ge=0, lt=1)


class FedLtnConfig(_Pruning):
    """Personal lottery tickets that are pruned after training and train on from there (Mugunthan, 2022, chapter 4).

    Without local entries in `model.state`, batch norm's are the site's own.

    Attributes:
        target: share of the weights that is pruned in the end.
        step: share that is pruned at once.
        step_of: whether `step` is of all weights of a layer, or of those that are left.
        threshold: accuracy on held-out examples beyond which the site prunes.
        validation: share of the site's training examples that is held out for it; 0: those that it learns from.
        align: strength of the pull towards the received model.
        rewind: whether what is left begins anew at its first values after each pruning.
        zeros: whether pruned weights count as zeros in the mean, as in the paper, instead of being left unsaid.
        spare_output: whether the last layer is never pruned.
        jump_start: None: the run begins with all sites' models.
    """

    name: Literal["fedltn"]
    target: float = Field(default=0.9, gt=0, lt=1)
    step: float = Field(default=0.1, gt=0, lt=1)
    step_of: Literal["original", "remaining"] = "remaining"
    threshold: float = Field(default=0.6, ge=0, lt=1)
    validation: float = Field(default=0.2, ge=0, lt=1)
    align: float = Field(default=0.01, ge=0, le=1e6)
    rewind: bool = False
    zeros: bool = False
    spare_output: bool = False
    jump_start: JumpStartConfig | None = None

    def rewinds(self) -> bool:
        """Whether first values are kept."""
        return self.rewind

    def shared_from(self) -> int:
        """See `AlgorithmConfig`."""
        return 1 if self.jump_start is None else 2


class LotteryFlConfig(_Pruning):
    """Personal lottery tickets that are pruned before training and rewound to their first values (Li et al., 2021).

    Attributes:
        target, step, threshold, validation, spare_output: as of fedltn.
    """

    name: Literal["lotteryfl"]
    target: float = Field(default=0.5, gt=0, lt=1)
    step: float = Field(default=0.1, gt=0, lt=1)
    threshold: float = Field(default=0.5, ge=0, lt=1)
    validation: float = Field(default=0.2, ge=0, lt=1)
    spare_output: bool = False
    step_of: ClassVar[Literal["original", "remaining"]] = "remaining"

    def rewinds(self) -> bool:
        """Whether first values are kept."""
        return True


AnyAlgorithm = Annotated[SerializeAsAny[AlgorithmConfig], by_name(ALGORITHMS, AlgorithmConfig, "fedavg")]
"""A field of a model: the settings of whatever algorithm is named."""
