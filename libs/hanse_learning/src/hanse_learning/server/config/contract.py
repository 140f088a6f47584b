"""What a strategy is to Hanse: its settings as a job names them, what it needs, and the object that does the work.

A package offers one under the entry-point group `hanse.strategies`, as Hanse does with its own. docs/extending.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BeforeValidator, SerializeAsAny, ValidationError
from pydantic_core import PydanticCustomError

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.base import Frozen
from hanse_fabric.plugins import STRATEGIES, find

if TYPE_CHECKING:
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
            HanseError: INVALID_INPUT where there is none.
        """
        from hanse_learning.server.reduction import Reduction

        if not isinstance(self, Reduction):
            raise HanseError(
                ErrorCode.INVALID_INPUT,
                f"strategy {self.name}: {type(self).__name__} has no combine(updates, weights, out)",
                hint="docs/extending.md says what a strategy is",
            )  # fmt: skip
        return self

    def measures(self) -> bool:
        """Whether it looks at all updates before it combines any (`hanse_learning.server.reduction.Measured`)."""
        return hasattr(self, "measure")

    def needs(self) -> tuple[str, ...]:
        """The numbers that must come with every update (`normalizer`, `first_loss`)."""
        return ()

    def least(self) -> int:
        """How many updates it takes, at least."""
        return 1


def _read(given: Any) -> Any:
    """The settings of the reduction that a section names.

    Raises:
        ValidationError: naming what does not fit.
        HanseError: CONFLICT, INVALID_INPUT for a plug-in that is there twice, or that cannot be loaded.
    """
    if isinstance(given, ReductionConfig):
        return given
    if not isinstance(given, Mapping):
        raise PydanticCustomError("section", "a section with a name was expected, such as name: median")
    name = given.get("name", "weighted_mean")
    try:
        plugin = find(STRATEGIES, str(name))
    except HanseError as error:
        if error.code is ErrorCode.CONFLICT:
            raise
        raise _at("name", name, error.message) from None
    kind = plugin.load()
    if not (isinstance(kind, type) and issubclass(kind, ReductionConfig)):
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"{plugin}: {plugin.entry.value} is no subclass of ReductionConfig",
            hint="docs/extending.md says what a strategy is",
        )  # fmt: skip
    return kind.model_validate({**given, "name": name})


def _at(field: str, given: Any, message: str) -> ValidationError:
    error = PydanticCustomError("plugin", "{message}", {"message": message})
    return ValidationError.from_exception_data("section", [{"type": error, "loc": (field,), "input": given}])


AnyReduction = Annotated[SerializeAsAny[ReductionConfig], BeforeValidator(_read)]
"""A field of a model: the settings of whatever reduction is named."""
