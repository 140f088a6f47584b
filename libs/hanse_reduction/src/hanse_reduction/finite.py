"""Looking for NaN and infinity at the memory's speed, and naming the entry that holds one."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.tensors.layout import Layout
from hanse_learning.server.reduction import Array, working_dtype


def all_finite(values: Array) -> bool:
    """Whether all of `values` (n,) floats are finite.

    A sum that is finite proves it in one pass without a temporary; only a sum that is not is looked at closely (it may
    have overflowed).
    """
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.add.reduce(values, dtype=working_dtype(values.dtype))
    return bool(np.isfinite(total)) or bool(np.isfinite(values).all())


def describe(values: Array, offset: int, layout: Layout) -> str:
    """Names the first entry that is not finite in `values` (n,), which lie at byte `offset` of a file."""
    index = int(np.flatnonzero(~np.isfinite(values))[0])
    at = offset + index * values.itemsize
    starts = list(layout.offsets.values())
    # Empty entries share an offset with the next one; the last of equals is the one that has bytes.
    entry = layout.entries[bisect_right(starts, at) - 1]
    element = (at - layout.offsets[entry.name]) // values.itemsize
    return f"entry {entry.name} is {values[index]} at element {element}, finite numbers were expected"


def require_finite(model: Array, offset: int, layout: Layout) -> None:
    """Raises HanseError INVALID_INPUT where values of the new model are not finite; arguments as of `describe`."""
    if not all_finite(model):
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"new model: {describe(model, offset, layout)}",
            hint="lower the learning rate of the server or of the sites",
        )  # fmt: skip
