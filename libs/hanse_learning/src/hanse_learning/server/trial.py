"""What every strategy and server optimizer must keep, tried out on drawn numbers: for the tests of whoever writes one.

Aggregators cut the columns of the updates into blocks and give them to threads and replicas; so the result must not
depend on where they are cut, nor on what else lies beside a column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from hanse_fabric.errors import invalid
from hanse_learning.server.config import OptimizerConfig, ReductionConfig
from hanse_learning.server.reduction import (
    Array,
    Measured,
    Rows,
    chosen_weights,
    combined_by_plugin,
    measured,
    normalize,
    working_dtype,
)
from hanse_learning.server.strategy import build_strategy

_COLUMNS = 700
_CUTS = (0, 1, 2, 3, 260, 699, 700)
_NAMES = ("normalizer", "first_loss")
_ROUNDS = 3


def try_out(config: ReductionConfig | OptimizerConfig, count: int | None = None) -> None:
    """Reduce drawn updates by a strategy, or move a drawn model by a server optimizer, in one block and in several.

    Args:
        count: of updates; one more than the least by default, and seven at least.

    Raises:
        HanseError: INVALID_INPUT saying what is not kept: bits that depend on the cuts, changed inputs, columns that
            were not written, a model that does not move, weights that are no numbers, settings that a job cannot have.
    """
    if type(config).model_validate(config.model_dump(mode="json")) != config:
        raise invalid("settings", config, "the same after they were written to a job and read again")
    if isinstance(config, OptimizerConfig):
        _try_optimizer(config)
        return
    config.build()  # whose errors say which method is missing
    count = count or max(7, config.least() + 1)
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
        totals = measured(reduction, list(updates))
    info = {name: np.ones(len(updates)) for name in _NAMES}
    weights = chosen_weights(reduction, totals, weights, info)
    out = np.full(len(updates[0]), np.nan, working_dtype(updates[0].dtype))
    for block in blocks:
        try:
            combined_by_plugin(
                f"strategy {config.name}", reduction, [row[block] for row in updates], weights, out[block]
            )
        except ValueError as error:
            if "read-only" not in str(error):
                raise
            raise invalid("combine", "changed updates", "updates that are left as they came") from error
    return out


def _try_optimizer(config: OptimizerConfig) -> None:
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        model, *changes = (rng.standard_normal(_COLUMNS).astype(dtype) for _ in range(1 + _ROUNDS))
        whole, other = _moved(config, model, changes, (0, _COLUMNS)), _moved(config, model, changes, _CUTS)
        if not all(np.isfinite(array).all() for array in whole):
            raise invalid("step", "a number that is not", f"finite numbers in model and state of {dtype.__name__}")
        if np.array_equal(whole[0], model):
            expected = f"a model that moves, in place, within {_ROUNDS} rounds: model += ..."
            raise invalid("step", "a model that is as it was", expected)
        if [array.tobytes() for array in whole] != [array.tobytes() for array in other]:
            raise invalid("step", f"{dtype.__name__} in other blocks", "the same bits wherever columns are cut")


def _moved(config: OptimizerConfig, model: Array, changes: Sequence[Array], cuts: tuple[int, ...]) -> list[Array]:
    """The model (n,) after some rounds, and the arrays of its state, moved block by block."""
    strategy = build_strategy(config)
    model, state = model.copy(), {name: np.full_like(model, value) for name, value in strategy.optimizer.state.items()}
    for number, change in enumerate(changes, 1):
        for first, last in pairwise(cuts):
            own = {name: array[first:last] for name, array in state.items()}
            strategy.move(model[first:last], change[first:last].copy(), own, number)
    return [model, *state.values()]
