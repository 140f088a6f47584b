"""A strategy on arrays in memory (`hanse_learning.reduce`): the aggregators' reductions without files.

Sums that are measured of all updates are made of blocks of BLOCK columns, entry by entry in the given order. The
aggregators cut by leaves of files: what is chosen by such sums is the same, its last bits need not be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_learning.on_arrays import NumpyArrays
from hanse_learning.server.config import ReductionConfig
from hanse_learning.server.fednova import FedNova
from hanse_learning.server.private_mean import PrivateMean
from hanse_learning.server.reduction import Array, Measured, Reduction, Reweighed, normalize
from hanse_learning.server.strategy import Strategy, build_strategy
from hanse_learning.server.weighted_mean import WeightedMean

Arrays: TypeAlias = Any
"""One array, a sequence of arrays, or a mapping of arrays by name."""

BufferRules: TypeAlias = Mapping[str, str | tuple[str, str]]

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


class Backend(Protocol):
    """Operations on one kind of arrays; all take and give flat ones (n,)."""

    def kind(self, array: Any) -> str:
        """ "f" for floats that can be trained, otherwise another letter."""

    def flat(self, array: Any) -> Any:
        """A view, or a copy."""

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
    strategy: Mapping[str, Any] | ReductionConfig,
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
    entries = _named(model, "model")
    backend = _backend(entries, threads)
    ruled = {name: _rule(backend, name, array, buffers) for name, array in entries.items()}
    rules = {name: found for name, found in ruled.items() if found is not None}
    rows = _rows(backend, entries, updates)
    given = _weights(weights, len(rows))
    # What is not finite shows in a sum: that it is looked for only then saves a pass over all updates.
    shows = isinstance(built.reduction, WeightedMean | FedNova)
    _check_finite(backend, rows, rules if shows else entries)
    state = state or ServerState()
    new = {name: backend.copy(array) for name, array in entries.items()}
    kept = {
        name: {entry: _kept(backend, state, name, entry, new[entry], value) for entry in new if entry not in rules}
        for name, value in built.optimizer.state.items()
    }
    trained = [name for name in new if name not in rules]
    chosen = _reweighed(backend, built.reduction, [[row[name] for row in rows] for name in trained], given, info)
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
    return _as_given(model, new), ServerState(state.round + 1, kept)


def _named(arrays: Arrays, what: str) -> dict[str, Any]:
    if isinstance(arrays, Mapping):
        named = dict(arrays)
    elif isinstance(arrays, list | tuple):
        named = {str(index): array for index, array in enumerate(arrays)}
    else:
        named = {"0": arrays}
    if not named or not all(hasattr(array, "shape") and hasattr(array, "dtype") for array in named.values()):
        raise invalid(what, type(arrays).__name__, "an array, a sequence of arrays, or arrays by name")
    return named


def _as_given(model: Arrays, new: dict[str, Any]) -> Arrays:
    if isinstance(model, Mapping):
        return new
    if isinstance(model, list | tuple):
        return [*new.values()]
    return new["0"]


def _backend(entries: Mapping[str, Any], threads: int) -> Backend:
    module = type(next(iter(entries.values()))).__module__
    if module.split(".")[0] != "torch":
        return NumpyArrays(threads, BLOCK)
    from hanse_learning.on_tensors import TorchTensors

    return TorchTensors()


def _rule(backend: Backend, name: str, array: Any, buffers: BufferRules) -> tuple[str, str] | None:
    """The rule of a buffer and the entry of its means ("" where it needs none); None for parameters."""
    given = buffers.get(name)
    if given is None:
        return None if backend.kind(array) == "f" else ("keep_newest", "")
    rule, mean = (given, "") if isinstance(given, str) else given
    if rule not in ("average", "keep_newest", "pool_variance") or (rule == "pool_variance") != bool(mean):
        raise invalid(f"buffers.{name}", given, "average, keep_newest, or (pool_variance, name of the means)")
    return rule, mean


def _rows(backend: Backend, entries: Mapping[str, Any], updates: Sequence[Arrays]) -> list[dict[str, Any]]:
    if not updates:
        raise invalid("updates", 0, "one update or more")
    rows = []
    for index, update in enumerate(updates):
        named = _named(update, f"updates[{index}]")
        if named.keys() != entries.keys():
            raise invalid(f"updates[{index}]", sorted(named), f"the model's entries {sorted(entries)}")
        for name, array in entries.items():
            row = named[name]
            if (row.shape, row.dtype) != (array.shape, array.dtype):
                raise invalid(
                    f"updates[{index}].{name}", f"{row.dtype} {tuple(row.shape)}",
                    f"{array.dtype} {tuple(array.shape)}, as in the model",
                )  # fmt: skip
        rows.append({name: backend.flat(named[name]) for name in entries})
    return rows


def _check_finite(backend: Backend, rows: Sequence[Mapping[str, Any]], names: Iterable[str]) -> None:
    for name in names:
        for index, row in enumerate(rows):
            if not backend.finite(row[name]):
                raise _not_finite(f"updates[{index}]", name, "the site's training diverged, or it is hostile")


def _not_finite(what: str, entry: str, hint: str) -> HanseError:
    return HanseError(ErrorCode.INVALID_INPUT, f"{what}, entry {entry}: a number is not finite", hint=hint)


def _weights(weights: Sequence[float] | None, count: int) -> Array:
    given = [1.0] * count if weights is None else [float(weight) for weight in weights]
    if len(given) != count or not all(0 < weight < float("inf") for weight in given):
        raise invalid("weights", given, f"{count} positive numbers, one for each update")
    return normalize(given)


def _kept(backend: Backend, state: ServerState, name: str, entry: str, like: Any, value: float) -> Any:
    if state.round == 0:
        return backend.filled(like, value)
    try:
        return backend.copy(state.arrays[name][entry])
    except KeyError:
        raise invalid("state", sorted(state.arrays), f"{name} of entry {entry}, which the strategy keeps") from None


def _reweighed(
    backend: Backend,
    reduction: Reduction,
    entries: Sequence[Sequence[Any]],
    weights: Array,
    info: Mapping[str, Sequence[float]],
) -> Array:
    """The weights that the reduction chooses; `entries` are the parameters, each with its K rows."""
    if not isinstance(reduction, Reweighed):
        return weights
    told = {name: np.array(list(numbers), np.float64) for name, numbers in info.items()}
    for name, numbers in told.items():
        if numbers.shape != weights.shape:
            raise invalid(f"info.{name}", numbers.shape, f"{len(weights)} numbers, one for each update")
    totals: dict[str, Array] = {}
    if isinstance(reduction, Measured):
        for rows in entries:
            for found in backend.measure(reduction, rows):
                for name, array in found.items():
                    totals[name] = totals[name] + array if name in totals else array
    return reduction.reweigh(totals, weights, told)
