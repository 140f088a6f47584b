"""What every strategy must keep, tried out on drawn numbers: for the tests of whoever writes one.

Aggregators cut the columns of the updates into blocks and give them to threads and replicas; so the result must not
depend on where they are cut, nor on what else lies beside a column.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from hanse_fabric.errors import invalid
from hanse_learning.server.config import ReductionConfig
from hanse_learning.server.reduction import Array, Measured, Rows, chosen_weights, normalize, working_dtype

_COLUMNS = 700
_CUTS = (0, 1, 2, 3, 260, 699, 700)
_NAMES = ("normalizer", "first_loss")


def try_out(config: ReductionConfig, count: int | None = None) -> None:
    """Reduce drawn updates by a strategy, in one block and in several.

    Args:
        count: of updates; one more than the least by default, and seven at least.

    Raises:
        HanseError: INVALID_INPUT saying what is not kept: bits that depend on the cuts, changed inputs, columns that
            were not written, weights that are no numbers, settings that a job cannot have.
    """
    count = count or max(7, config.least() + 1)
    if type(config).model_validate(config.model_dump(mode="json")) != config:
        raise invalid("strategy", config, "settings that are the same after they were written to a job and read again")
    for dtype in (np.float32, np.float64, np.float16):
        rng = np.random.default_rng(0)
        updates = [rng.standard_normal(_COLUMNS).astype(dtype) for _ in range(count)]
        whole = _reduced(config, updates, (0, _COLUMNS))
        if not np.isfinite(whole).all():
            raise invalid("combine", whole, f"finite numbers in every column of {dtype.__name__}")
        if whole.tobytes() != _reduced(config, updates, _CUTS).tobytes():
            raise invalid("combine", f"{dtype.__name__} in other blocks", "the same bits wherever columns are cut")


def _reduced(config: ReductionConfig, updates: Rows, cuts: tuple[int, ...]) -> Array:
    """(n,) of K `updates` (n,), block by block; the weights are chosen by what is measured of all columns."""
    reduction = config.build()
    blocks = [slice(first, last) for first, last in pairwise(cuts)]
    weights = normalize([1.0 + k for k in range(len(updates))])
    totals: Mapping[str, Array] = {}
    if isinstance(reduction, Measured):  # in one block: sums that are cut otherwise differ in their last bits
        totals = reduction.measure(list(updates))
    info = {name: np.ones(len(updates)) for name in _NAMES}
    weights = chosen_weights(reduction, totals, weights, info)
    out = np.full(len(updates[0]), np.nan, working_dtype(updates[0].dtype))
    for block in blocks:
        given = [row[block].copy() for row in updates]
        reduction.combine(given, weights, out[block])
        if any(row.tobytes() != update[block].tobytes() for row, update in zip(given, updates, strict=True)):
            raise invalid("combine", "changed updates", "updates that are left as they came")
    return out
