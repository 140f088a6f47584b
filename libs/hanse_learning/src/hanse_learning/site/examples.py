"""A site's examples in memory, and the learning problem that they pose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import invalid
from hanse_learning.config.training import OF_CLASSES
from hanse_schemas.schema import DataSchema, OpenSchema, TabularSchema, learnable


@dataclass(frozen=True, slots=True)
class Examples:
    """`x` (n, *shape) float32; `y` (n,) int64 labels or float32 values; `whose` (n,) whose each example is, where some
    may have several: a number from 0 for each unit of privacy; `weights` (n,) float64 what each counts in training;
    `draws` (n,) uint64 by which a site sets test data aside, where it goes by whose they are."""

    x: NDArray[np.float32]
    y: NDArray[Any]
    whose: NDArray[np.int64] | None = None
    weights: NDArray[np.float64] | None = None
    draws: NDArray[np.uint64] | None = None

    def __len__(self) -> int:
        return len(self.x)

    def take(self, indices: NDArray[np.int64]) -> Examples:
        """Some of them; units are numbered anew."""
        whose = None if self.whose is None else np.unique(self.whose[indices], return_inverse=True)[1]
        weights = None if self.weights is None else self.weights[indices]
        draws = None if self.draws is None else self.draws[indices]
        x, y = np.ascontiguousarray(self.x[indices]), np.ascontiguousarray(self.y[indices])
        return Examples(x, y, whose, weights, draws)

    @property
    def units(self) -> int:
        """How many units of privacy: those who have the examples, or else these."""
        return len(self) if self.whose is None else len(np.unique(self.whose))

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """All that there is of them."""
        return (self.x, self.y, *(array for array in (self.whose, self.weights) if array is not None))


@dataclass(frozen=True, slots=True)
class Problem:
    """Shape of one example, number of outputs (classes; 1 for two classes by one logit, and for regression), and the
    task."""

    shape: tuple[int, ...]
    outputs: int
    task: Literal["classification", "regression"]


def pose(
    schema: DataSchema,
    examples: Examples | None,
    *,
    loss: str | None = None,
    inputs: tuple[int, ...] | None = None,
    outputs: int | None = None,
) -> Problem:
    """The problem that schema, configuration and (where these leave something open) the examples pose.

    Args:
        loss: name of the configured loss; `binary` is of one output.

    Raises:
        HanseError: INVALID_INPUT where nothing says it.
    """
    known = learnable(schema)
    if isinstance(known, OpenSchema):
        whole = examples is not None and examples.y.dtype.kind in "iu"
        task: Literal["classification", "regression"] = (
            "classification" if loss in OF_CLASSES or (loss is None and whole) else "regression"
        )
        shape, classes = inputs, outputs
    else:
        task = known.task
        shape = (len(known.features),) if isinstance(known, TabularSchema) else known.shape
        classes = known.classes or outputs
    if shape is None:
        if examples is None:
            raise invalid("model.inputs", None, "a shape: neither schema nor data tell it")
        shape = examples.x.shape[1:]
    if task == "regression" or loss == "binary" or outputs == 1:
        return Problem(tuple(shape), outputs or 1, task)
    if classes is None:
        if examples is None or not len(examples):
            raise invalid("model.outputs", None, "a number of classes: neither schema nor data tell it")
        classes = max(2, int(examples.y.max()) + 1)
    return Problem(tuple(shape), classes, task)
