"""What a strategy and a server optimizer are to Hanse: their settings as a job names them, and the object that works.

A package offers one under the entry-point group `hanse.strategies` or `hanse.server_optimizers`, as Hanse does with its
own. docs/extending.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

from pydantic import SerializeAsAny

from hanse_fabric.errors import invalid
from hanse_fabric.messages.base import Frozen
from hanse_fabric.plugin_methods import require_count, require_method, require_texts
from hanse_fabric.plugins import SERVER_OPTIMIZERS, STRATEGIES
from hanse_learning.config.named import by_name

if TYPE_CHECKING:
    from hanse_learning.server.optimizers import ServerOptimizer
    from hanse_learning.server.reduction import Reduction


class ReductionConfig(Frozen):
    """The settings of a reduction, and by default the reduction itself: subclasses then have `combine`, and where they
    look at whole updates first, `measure` and `reweigh` (see `hanse_learning.server.reduction`).

    Attributes:
        name: in a job, a `Literal` with a default; the entry point's name.
        examples: settings to try it with: in tests, and before a device is used. One set of defaults by default.
    """

    name: str
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = ({},)

    def build(self) -> Reduction:
        """The object that combines updates.

        Raises:
            HanseError: INVALID_INPUT where a method is missing, cannot be called, or says something of another kind.
        """
        title = f"strategy {self.name}"
        require_method(title, self, "combine", "updates", "weights", "out")
        if self.measures():
            require_method(title, self, "measure", "updates")
        if self.measures() or hasattr(self, "reweigh"):
            require_method(title, self, "reweigh", "totals", "weights", "info")
        require_count(f"{title}: least()", self.least())
        require_texts(f"{title}: needs()", self.needs())
        return cast("Reduction", self)

    def measures(self) -> bool:
        """Whether it looks at all updates before it combines any (`hanse_learning.server.reduction.Measured`)."""
        return hasattr(self, "measure")

    def needs(self) -> tuple[str, ...]:
        """The numbers that must come with every update (`normalizer`, `first_loss`)."""
        return ()

    def least(self) -> int:
        """How many updates it takes, at least."""
        return 1


class OptimizerConfig(Frozen):
    """The settings of a server optimizer, and by default the optimizer itself: subclasses then have `step` (see
    `hanse_learning.server.optimizers.ServerOptimizer`).

    Attributes:
        name: in a job, a `Literal` with a default; the entry point's name.
    """

    name: str

    @property
    def state(self) -> Mapping[str, float]:
        """The arrays that are kept from round to round, each as large as the model, by name, with the value that fills
        them before the first."""
        return {}

    def build(self) -> ServerOptimizer:
        """The object that moves the model.

        Raises:
            HanseError: INVALID_INPUT where `step` is missing or cannot be called, or `state` is something else.
        """
        title = f"server optimizer {self.name}"
        require_method(title, self, "step", "model", "change", "state", "round")
        state = self.state
        if not isinstance(state, Mapping) or not all(isinstance(value, int | float) for value in state.values()):
            raise invalid(
                f"{title}: state", state, "a property that gives a mapping of names to numbers, such as "
                "{'momentum': 0.0}",
            )  # fmt: skip
        return cast("ServerOptimizer", self)


AnyOptimizer = Annotated[SerializeAsAny[OptimizerConfig], by_name(SERVER_OPTIMIZERS, OptimizerConfig, "none")]
"""A field of a model: the settings of whatever server optimizer is named."""

AnyReduction = Annotated[SerializeAsAny[ReductionConfig], by_name(STRATEGIES, ReductionConfig, "weighted_mean")]
"""A field of a model: the settings of whatever reduction is named."""
