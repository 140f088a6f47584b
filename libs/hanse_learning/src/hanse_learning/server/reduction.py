"""What a reduction is: it turns K rows of equal length into one, column by column, and never sees I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeGuard, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.plugin_methods import require_nothing

Array: TypeAlias = npt.NDArray[Any]
Rows: TypeAlias = Sequence[Array]
"""K arrays (n,) of one dtype, in the order of their participants' names."""

TILE = 1 << 17
"""Columns that are worked on at once: a tile of float32, its result and a scratch row lie in a core's L2 cache, and
one call of numpy works long enough that two threads do not fight for the interpreter."""


@runtime_checkable
class Reduction(Protocol):
    """Combines rows. Every output column depends on its own input column and the weights only, by a fixed order of
    operations: results do not change by a bit when the columns are cut into other blocks or given to other threads."""

    def combine(self, updates: Rows, weights: Array, out: Array) -> None:
        """Reduce `updates`, K arrays (n,), with `weights` (K,) float64 summing to 1, into `out` (n,).

        `out` has the working dtype: float64 for float64 updates, else float32.
        """
        ...


@runtime_checkable
class Reweighed(Reduction, Protocol):
    """A reduction that chooses the weights of the updates before it combines any column."""

    def reweigh(self, totals: Mapping[str, Array], weights: Array, info: Mapping[str, Array]) -> Array:
        """The weights (K,) float64 that `combine` is then called with.

        Args:
            totals: what was measured; empty for reductions that measure nothing.
            weights: (K,) float64, summing to 1.
            info: by name, numbers (K,) float64 that came with all updates, and `weights` before they were scaled.
        """
        ...


@runtime_checkable
class Measured(Reweighed, Protocol):
    """A reduction that looks at all columns before it combines any: norms to clip by, distances to choose by.

    The engine calls `measure` on every block of parameters, of boundaries that K and the layout alone determine, adds
    the arrays of equal name up in a fixed order (the blocks of a leaf, the leaves of a group, the groups), and calls
    `reweigh` once with the totals. So these are the same to the bit however the leaves were shared out.
    """

    def measure(self, updates: Rows) -> Mapping[str, Array]:
        """Sums over this block, K arrays (n,) of one dtype, by name: float64 of any shape, such as (K,) or (K, K)."""
        ...


def measured(reduction: Measured, rows: Rows) -> Mapping[str, Array]:
    """What a reduction measures of a block.

    Raises:
        HanseError: INVALID_INPUT where that is no mapping of names to numbers.
    """
    found: object = reduction.measure(rows)
    expected, method = "a mapping of names to arrays of float64", f"{type(reduction).__name__}.measure"
    if not isinstance(found, Mapping):
        raise invalid(method, found, expected)
    try:
        return {name: np.asarray(array, np.float64) for name, array in found.items()}
    except (TypeError, ValueError):
        raise invalid(method, found, expected) from None


def combined_by_plugin(title: str, reduction: Reduction, updates: Rows, weights: Array, out: Array) -> None:
    """`combine` of a reduction that is not Hanse's own, of finite updates.

    What it does not write into `out` would be whatever this process had in its memory before, of other runs, too.
    What it is given it cannot change: the caller needs it.

    Args:
        title: what it is called in errors.

    Raises:
        HanseError: INVALID_INPUT where it returns its result, or leaves a column out, or makes no number of it.
    """
    out.fill(np.nan)
    returned: object = cast(Any, reduction).combine([*map(_unchanging, updates)], _unchanging(weights), out)
    require_nothing(f"{title}: combine", returned, "out")
    if np.isnan(out).any():
        column = int(np.flatnonzero(np.isnan(out))[0])
        told = f"{title}: combine has written no number into column {column} of {len(out)}"
        hint = "write every column of out; the updates are finite numbers"
        raise HanseError(ErrorCode.INVALID_INPUT, told, hint=hint)


def _unchanging(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


_FITTING: dict[tuple[type, type], bool] = {}


def measures(reduction: Reduction) -> TypeGuard[Measured]:
    """Whether a reduction is one that measures."""
    return _fits(reduction, Measured)


def _reweighs(reduction: Reduction) -> TypeGuard[Reweighed]:
    return _fits(reduction, Reweighed)


def _fits(reduction: Reduction, protocol: type) -> bool:
    """`isinstance`, once for each class: with a protocol it takes as long as the reduction of a small model."""
    key = type(reduction), protocol
    if key not in _FITTING:
        _FITTING[key] = isinstance(reduction, protocol)
    return _FITTING[key]


def chosen_weights(
    reduction: Reduction, totals: Mapping[str, Array], weights: Array, info: Mapping[str, Array]
) -> Array:
    """The weights (K,) that the reduction chooses; the given ones where it chooses none. See `Reweighed.reweigh`.

    Raises:
        HanseError: INVALID_INPUT for weights that are not K finite numbers, and as the reduction's own.
    """
    if not _reweighs(reduction):
        return weights
    if not totals and measures(reduction):  # a model without parameters: distances and norms are 0
        totals = measured(reduction, [np.empty(0, np.float32)] * len(weights))
    found = np.asarray(reduction.reweigh(totals, weights, info), np.float64)
    if found.shape != weights.shape or not np.isfinite(found).all():
        raise invalid("weights", found.tolist(), f"{len(weights)} finite numbers from the strategy")
    return found


def working_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that sums are made in: float64 for float64, float32 for float32 and float16."""
    return np.dtype(np.float64) if dtype == np.float64 else np.dtype(np.float32)


def normalize(weights: Sequence[float]) -> Array:
    """Positive weights scaled to sum 1, as float64 (K,); the sum is made in the given order."""
    total = 0.0
    for weight in weights:
        total += weight
    if total == float("inf"):
        return normalize([weight / max(weights) for weight in weights])
    return np.array([weight / total for weight in weights], dtype=np.float64)


def tiles(count: int) -> Iterator[slice]:
    """Slices of at most TILE columns that cover `count`."""
    for start in range(0, count, TILE):
        yield slice(start, min(start + TILE, count))
