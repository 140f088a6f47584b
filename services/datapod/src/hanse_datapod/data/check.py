"""Holds arrays that were read against the project's schema: shapes, finite values, bounds, labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_datapod.data.names import Numbering
from hanse_fabric.errors import HanseError, unfit
from hanse_learning.site.examples import Examples
from hanse_schemas.schema import ArraySchema, LearnableSchema, OpenSchema, TabularSchema, unit_of


@dataclass(slots=True)
class Passed:
    """How many checks were made, whose order is the same for each piece of a file: so it is known which fault a look at
    the whole file would have found first."""

    count: int = 0

    def one(self) -> None:
        """The next check begins."""
        self.count += 1


@dataclass(frozen=True, slots=True)
class Raw:
    """Arrays as read: where from, `x` (n, ...), `y` (n,), and what an example is called in messages.

    Attributes:
        whose: (n,) whose each example is, as it stands in the file (`names.said` says which are one), or by numbers;
            None: not read.
        weights: (n,) what each counts in training, as far as numbers are there; None: not read.
        names: of those whose numbers `whose` has, by these; None: `whose` has the names.
        before: how many examples of the same file stand before these.
    """

    where: str
    x: NDArray[Any]
    y: NDArray[Any]
    unit: str = "row"
    whose: NDArray[Any] | None = None
    weights: NDArray[np.float64] | None = None
    before: int = 0
    names: Sequence[str] | None = None


def checked(raw: Raw, schema: LearnableSchema) -> Examples:
    """The examples in float32, with labels in int64.

    Raises:
        HanseError: SCHEMA_MISMATCH naming file, example and what was expected; what was found stays at the site.
    """
    small = checked_inputs(raw, schema, Passed())
    return Examples(small, *checked_rest(raw, schema))


def checked_inputs(raw: Raw, schema: LearnableSchema, passed: Passed) -> NDArray[np.float32]:
    """The inputs of examples in float32.

    Raises:
        HanseError: as `checked`.
    """
    x, y = raw.x, raw.y
    if x.dtype.kind not in "fiub" or y.dtype.kind not in "fiub":
        raise mismatch(f"{raw.where}: x and y are not numbers", f"{x.dtype} and {y.dtype}")
    if x.ndim < 1 or y.ndim != 1 or len(x) != len(y):
        raise mismatch(
            f"{raw.where}: x (n, ...) and y (n,) were expected, in other shapes", f"{list(x.shape)} and {list(y.shape)}"
        )
    if not x.size:
        raise mismatch(f"{raw.where}: there are no examples")
    shape = _shape(schema)
    if shape is not None and x.shape[1:] != shape:
        raise mismatch(f"{raw.where}: examples have shape {list(x.shape[1:])}, the schema says {list(shape)}")
    with np.errstate(over="ignore"):
        small = np.ascontiguousarray(x, dtype=np.float32)
    flat = small.reshape(len(small), -1)
    passed.one()
    _refuse_first(raw, "x", flat, ~np.isfinite(flat), "a finite number")
    if isinstance(schema, ArraySchema):
        _bounds(raw, flat, schema, passed)
    return small


def checked_rest(
    raw: Raw, schema: LearnableSchema
) -> tuple[NDArray[Any], NDArray[np.int64] | None, NDArray[np.float64] | None]:
    """(targets, whose each example is, weights), whatever its inputs are.

    Raises:
        HanseError: as `checked`.
    """
    return _targets(raw, schema), _whose(raw, schema), _weights(raw, schema)


def mismatch(told: str, found: object = "") -> HanseError:
    """The error for data that are not what the project declared (`unfit`)."""
    return unfit(told, found, hint="correct the data, or the project's schema; the site's log says what was found")


def _whose(raw: Raw, schema: LearnableSchema) -> NDArray[np.int64] | None:
    """Whose each example is, as numbers from 0."""
    unit = unit_of(schema)
    if unit is None:
        return None
    if raw.whose is None:
        raise mismatch(f"{raw.where}: {unit}, which says whose an example is, is missing")
    if raw.whose.shape != raw.y.shape:
        raise mismatch(f"{raw.where}: {unit}: one value for each example was expected", f"{list(raw.whose.shape)}")
    found, whose = np.unique(raw.whose, return_inverse=True)
    if found.dtype.kind not in "iu":  # one whole number has one form alone
        numbering = Numbering()
        whose = numbering.of_each(found.tolist())[whose]
        found = np.arange(len(numbering.names))
    if len(found) == len(whose) > 1:
        raise mismatch(
            f"{raw.where}: {unit}: each {raw.unit} has a value of its own, the same for all of one person's was "
            "expected; where nobody has more than one, the project's schema needs no unit"
        )
    return whose.astype(np.int64)


def _weights(raw: Raw, schema: LearnableSchema) -> NDArray[np.float64] | None:
    named = schema.weight if isinstance(schema, TabularSchema) else None
    if named is not None and raw.weights is None:
        raise mismatch(f"{raw.where}: {named}, which says how much an example counts, is missing")
    return None if named is None else raw.weights


def _shape(schema: LearnableSchema) -> tuple[int, ...] | None:
    if isinstance(schema, ArraySchema):
        return schema.shape
    return (len(schema.features),) if isinstance(schema, TabularSchema) else None


def _bounds(raw: Raw, flat: NDArray[np.float32], schema: ArraySchema, passed: Passed) -> None:
    passed.one()
    if schema.minimum is not None:
        _refuse_first(raw, "x", flat, flat < np.float32(schema.minimum), f"at least {schema.minimum:g}")
    passed.one()
    if schema.maximum is not None:
        _refuse_first(raw, "x", flat, flat > np.float32(schema.maximum), f"at most {schema.maximum:g}")


def _refuse_first(raw: Raw, name: str, flat: NDArray[Any], bad: NDArray[np.bool_], expected: str) -> None:
    if bad.any():
        row, column = (int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
        where = f"{raw.where}: {name} of {raw.unit} {raw.before + row + 1}, value {column + 1}"
        raise mismatch(f"{where}: {expected} was expected", flat[row, column].item())


def _targets(raw: Raw, schema: LearnableSchema) -> NDArray[Any]:
    y = raw.y
    column = y.reshape(-1, 1)
    if y.dtype.kind == "f":
        _refuse_first(raw, "y", column, ~np.isfinite(column), "a finite number")
    if isinstance(schema, OpenSchema):
        return y.astype(np.int64) if y.dtype.kind in "iub" else y.astype(np.float32)
    if schema.task == "regression":
        return y.astype(np.float32)
    if y.dtype.kind == "f":
        _refuse_first(raw, "y", column, column != np.round(column), "a whole number, as classification needs")
    top = schema.classes
    expected = f"a label from 0 to {top - 1}" if top is not None else "a label from 0"
    _refuse_first(raw, "y", column, (column < 0) | (column >= (top if top is not None else 2**31)), expected)
    return y.astype(np.int64)
