"""What `hanse_learning.reduce` is given: read and checked, with errors that name the argument, its value and what was
expected of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from hanse_fabric.errors import invalid
from hanse_learning.server.reduction import Array, normalize

Arrays: TypeAlias = Any
"""One array, a sequence of arrays, or a mapping of arrays by name."""

BufferRules: TypeAlias = Mapping[str, str | tuple[str, str]]


class Reads(Protocol):
    """What reading needs of one kind of arrays."""

    def kind(self, array: Any) -> str:
        """ "f" for floats that can be trained, "i" for what can only be a buffer, "" for what is neither."""

    def flat(self, array: Any) -> Any:
        """(n,): a view, or a copy."""


def read_model(model: Arrays) -> dict[str, Any]:
    """The entries by name; a sequence's are "0", "1", ...

    Raises:
        HanseError: INVALID_INPUT.
    """
    return _named(model, "model")


def as_given(model: Arrays, new: dict[str, Any]) -> Arrays:
    """The new entries in the form of `model`."""
    if isinstance(model, Mapping):
        return new
    if isinstance(model, list | tuple):
        return [*new.values()]
    return new["0"]


def read_rules(reads: Reads, entries: Mapping[str, Any], buffers: BufferRules) -> dict[str, tuple[str, str]]:
    """For the entries that are buffers, the rule and the entry of the means ("" where it needs none).

    Raises:
        HanseError: INVALID_INPUT.
    """
    if unknown := [name for name in buffers if name not in entries]:
        raise invalid(f"buffers.{unknown[0]}", buffers[unknown[0]], f"an entry of the model, {sorted(entries)}")
    found = {}
    for name, array in entries.items():
        kind = reads.kind(array)
        if not kind:
            raise invalid(f"model, entry {name}", str(array.dtype), "float16, float32, float64, or an integer's type")
        if name in buffers:
            found[name] = _rule(name, buffers[name], kind, entries)
        elif kind != "f":
            found[name] = ("keep_newest", "")
    return found


def _rule(name: str, given: str | tuple[str, str], kind: str, entries: Mapping[str, Any]) -> tuple[str, str]:
    rule, mean = (given, "") if isinstance(given, str) else given
    array = entries[name]
    if rule not in ("average", "keep_newest", "pool_variance") or (rule == "pool_variance") != bool(mean):
        raise invalid(f"buffers.{name}", given, "average, keep_newest, or (pool_variance, name of the means)")
    if mean and (mean not in entries or entries[mean].shape != array.shape):
        raise invalid(f"buffers.{name}", given, "pool_variance with an entry of the model of the same shape")
    if rule != "keep_newest" and kind != "f":
        raise invalid(f"buffers.{name}", given, f"keep_newest, for {array.dtype}")
    return rule, mean


def read_updates(reads: Reads, entries: Mapping[str, Any], updates: Sequence[Arrays]) -> list[dict[str, Any]]:
    """K times the model's entries, flat.

    Args:
        updates: K updates in the model's form; (K, ...) where the model is one array.

    Raises:
        HanseError: INVALID_INPUT.
    """
    if (
        isinstance(updates, Mapping | str)
        or not hasattr(updates, "__getitem__")
        or getattr(updates, "shape", None) == ()
    ):
        raise invalid("updates", updates, "a sequence of one update or more")
    if not len(updates):
        raise invalid("updates", 0, "one update or more")
    rows = []
    for index, update in enumerate(updates):
        named = _named(update, f"updates[{index}]")
        if named.keys() != entries.keys():
            raise invalid(f"updates[{index}]", sorted(named), f"the model's entries {sorted(entries)}")
        for name, array in entries.items():
            check_alike(f"updates[{index}].{name}", named[name], array)
        rows.append({name: reads.flat(named[name]) for name in entries})
    return rows


def check_alike(field: str, given: Any, like: Any) -> None:
    """Raises HanseError INVALID_INPUT unless an array has the kind, type and shape of the model's."""
    same = type(given).__module__.split(".")[0] == type(like).__module__.split(".")[0]
    if not same or (given.shape, given.dtype) != (like.shape, like.dtype):
        raise invalid(field, _described(given), f"{_described(like)}, as in the model")


def read_weights(weights: Sequence[float] | None, count: int) -> Array:
    """(count,) float64 that sum to 1.

    Raises:
        HanseError: INVALID_INPUT.
    """
    given = np.ones(count) if weights is None else _numbers(weights)
    if given is None or given.shape != (count,) or not ((given > 0) & (given < np.inf)).all():
        raise invalid("weights", weights, f"{count} positive numbers, one for each update")
    return normalize(given.tolist())


def read_info(info: Mapping[str, Sequence[float]], count: int) -> dict[str, Array]:
    """By name, (count,) float64.

    Raises:
        HanseError: INVALID_INPUT.
    """
    told = {}
    for name, given in info.items():
        numbers = _numbers(given)
        if numbers is None or numbers.shape != (count,):
            raise invalid(f"info.{name}", given, f"{count} numbers, one for each update")
        told[name] = numbers
    return told


def _numbers(given: Any) -> Array | None:
    """As float64; None for what is not made of numbers."""
    try:
        return np.array([float(each) for each in given], np.float64)
    except (TypeError, ValueError):
        return None


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


def _described(array: Any) -> str:
    shape = tuple(array.shape) if hasattr(array, "shape") else type(array).__name__
    return f"{getattr(array, 'dtype', '')} {shape}"
