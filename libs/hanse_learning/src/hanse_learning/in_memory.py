"""A strategy on arrays in memory (`hanse_learning.reduce`): the aggregators' reductions without files.

Sums that are measured of all updates are made of blocks of BLOCK columns, entry by entry in the given order. The
aggregators cut by leaves of files: strategies choose the same updates by either sum, but its last bits may differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_learning.given_arrays import (
    Arrays,
    BufferRules,
    Reads,
    as_given,
    check_alike,
    read_info,
    read_model,
    read_rules,
    read_updates,
    read_weights,
)
from hanse_learning.on_arrays import NumpyArrays
from hanse_learning.server.config import OptimizerConfig, ReductionConfig
from hanse_learning.server.fednova import FedNova
from hanse_learning.server.private_mean import PrivateMean
from hanse_learning.server.reduction import Array, Measured, Reduction, chosen_weights, normalize
from hanse_learning.server.strategy import Strategy, build_strategy, check_enough
from hanse_learning.server.weighted_mean import WeightedMean

BLOCK = 1 << 18
"""Columns of one block of what is measured."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """What a strategy keeps from round to round.

    Attributes:
        round: rounds that were done.
        arrays: by the name of the state, then by that of the entry.
    """

    round: int = 0
    arrays: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class Backend(Reads, Protocol):
    """Operations on one kind of arrays; all take and give flat ones (n,)."""

    def copy(self, array: Any) -> Any: ...

    def filled(self, like: Any, value: float) -> Any: ...

    def finite(self, array: Any) -> bool: ...

    def measure(self, reduction: Measured, rows: Sequence[Any]) -> list[Mapping[str, Array]]:
        """What is measured, block by block."""

    def apply(
        self, strategy: Strategy, model: Any, rows: Sequence[Any], weights: Array, state: Mapping[str, Any], round_: int
    ) -> None:
        """See `Strategy.apply`."""

    def buffer(self, rule: str, values: Sequence[Any], means: Sequence[Any], weights: Array, out: Any) -> None:
        """See `hanse_learning.server.buffers`."""


def reduce_arrays(
    strategy: Mapping[str, Any] | ReductionConfig | OptimizerConfig,
    model: Arrays,
    updates: Sequence[Arrays],
    weights: Sequence[float] | None,
    state: ServerState | None,
    *,
    info: Mapping[str, Sequence[float]],
    buffers: BufferRules,
    threads: int,
) -> tuple[Arrays, ServerState]:
    """See `hanse_learning.reduce`."""
    built = build_strategy(strategy)
    if isinstance(built.reduction, PrivateMean):
        raise invalid("strategy.reduction.name", "private_mean", "another: this one is the hub's own")
    entries = read_model(model)
    backend = _backend(entries, threads)
    rules = read_rules(backend, entries, buffers)
    rows = read_updates(backend, entries, updates)
    check_enough(built, len(rows))
    given, told = read_weights(weights, len(rows)), read_info(info, len(rows))
    # What is not finite shows in a sum: that it is looked for only then saves a pass over all updates.
    shows = isinstance(built.reduction, WeightedMean | FedNova)
    _check_finite(backend, rows, rules if shows else entries)
    state = ServerState() if state is None else state
    if not isinstance(state, ServerState):
        raise invalid("state", state, "what the call before returned, or None")
    new = {name: backend.copy(array) for name, array in entries.items()}
    kept = {
        name: {entry: _kept(backend, state, name, entry, new[entry], value) for entry in new if entry not in rules}
        for name, value in built.optimizer.state.items()
    }
    trained = [name for name in new if name not in rules]
    chosen = _reweighed(backend, built.reduction, [[row[name] for row in rows] for name in trained], given, told)
    for name in trained:
        states = {each: backend.flat(arrays[name]) for each, arrays in kept.items()}
        backend.apply(
            built, backend.flat(new[name]), [row[name] for row in rows], chosen, states, state.round + 1
        )  # fmt: skip
        if not backend.finite(new[name]):
            _check_finite(backend, rows, trained)
            raise _not_finite("new model", name, "lower the learning rate of the server or of the sites")
    counted = np.flatnonzero(chosen).tolist() or list(range(len(rows)))
    shares = normalize([float(given[k]) for k in counted])
    for name, (rule, mean) in rules.items():
        means = [rows[k][mean] for k in counted] if mean else []
        backend.buffer(rule, [rows[k][name] for k in counted], means, shares, backend.flat(new[name]))
    return as_given(model, new), ServerState(state.round + 1, kept)


def _backend(entries: Mapping[str, Any], threads: int) -> Backend:
    module = type(next(iter(entries.values()))).__module__
    if module.split(".")[0] != "torch":
        return NumpyArrays(threads, BLOCK)
    from hanse_learning.on_tensors import TorchTensors

    return TorchTensors()


def _check_finite(backend: Backend, rows: Sequence[Mapping[str, Any]], names: Iterable[str]) -> None:
    for name in names:
        for index, row in enumerate(rows):
            if not backend.finite(row[name]):
                raise _not_finite(f"updates[{index}]", name, "the site's training diverged, or it is hostile")


def _not_finite(what: str, entry: str, hint: str) -> HanseError:
    return HanseError(ErrorCode.INVALID_INPUT, f"{what}, entry {entry}: a number is not finite", hint=hint)


def _kept(backend: Backend, state: ServerState, name: str, entry: str, like: Any, value: float) -> Any:
    if state.round == 0:
        return backend.filled(like, value)
    try:
        kept = state.arrays[name][entry]
    except KeyError:
        raise invalid("state", sorted(state.arrays), f"{name} of entry {entry}, which the strategy keeps") from None
    check_alike(f"state.{name}.{entry}", kept, like)
    return backend.copy(kept)


def _reweighed(
    backend: Backend, reduction: Reduction, entries: Sequence[Sequence[Any]], weights: Array, info: Mapping[str, Array]
) -> Array:
    """The weights that the reduction chooses; `entries` are the parameters, each with its K rows."""
    totals: dict[str, Array] = {}
    if isinstance(reduction, Measured):
        for rows in entries:
            for found in backend.measure(reduction, rows):
                for name, array in found.items():
                    totals[name] = totals[name] + array if name in totals else array
    return chosen_weights(reduction, totals, weights, info)
