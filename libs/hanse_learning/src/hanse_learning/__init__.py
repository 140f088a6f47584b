"""Hanse's learning algorithms: `server` (numpy) and the sites' side (torch). Importing this package loads neither.

`reduce` applies any strategy to arrays in memory, so that it can be held against another implementation:

    section = {"reduction": {"name": "krum", "byzantine": 1}, "optimizer": {"name": "adam", "lr": 0.01}}
    model, state = hanse_learning.reduce(section, model, updates, weights)
    model, state = hanse_learning.reduce(section, model, next_updates, weights, state)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hanse_learning.given_arrays import Arrays, BufferRules
    from hanse_learning.in_memory import ServerState
    from hanse_learning.server.config import OptimizerConfig, ReductionConfig

__all__ = ["reduce"]


def reduce(
    strategy: Mapping[str, Any] | ReductionConfig | OptimizerConfig,
    model: Arrays,
    updates: Sequence[Arrays],
    weights: Sequence[float] | None = None,
    state: ServerState | None = None,
    *,
    info: Mapping[str, Sequence[float]] | None = None,
    buffers: BufferRules | None = None,
    threads: int = 1,
) -> tuple[Arrays, ServerState]:
    """One round of a strategy, on arrays in memory: what the aggregators do with files, by the same code.

    Args:
        strategy: a job's `strategy` section, {} for federated averaging; or a reduction or server optimizer of your
            own.
        model: one array, a sequence of arrays, or arrays by name; of float16, float32 or float64 (integers are buffers
            that keep the newest value). numpy arrays, or torch tensors on any device, for the same result to rounding.
        updates: K times the same (of one array, also one array with a row for each): what the sites have made of the
            model minus the model (buffers: their values).
        weights: (K,) positive numbers of any scale, such as numbers of examples; None: all alike.
        state: what the call before returned; None in the first round.
        info: by name, (K,) numbers that come with the updates: `normalizer` for fednova, `first_loss` for qfedavg.
        buffers: by entry name (a sequence's are "0", "1", ...): "average", "keep_newest", or
            ("pool_variance", name of the entry with the means). Neither strategy nor sign mask sees them.
        threads: at work on numpy arrays. Bits do not depend on it.

    Returns:
        The new model, in the form of `model`, and the state for the next round. Nothing given is changed.

    Raises:
        HanseError: INVALID_INPUT naming what does not fit.
    """
    from hanse_learning.in_memory import reduce_arrays

    return reduce_arrays(
        strategy, model, updates, weights, state, info=info or {}, buffers=buffers or {}, threads=threads
    )
