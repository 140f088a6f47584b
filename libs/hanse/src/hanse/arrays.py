"""Models as people have them, as arrays by name: nested dicts and lists of numpy arrays, torch tensors and numbers.

A nested model has one name for each array: the keys and places on the way to it, joined by points. `[coef, intercept]`
has the entries `0` and `1`; `{"head": {"weight": w}}` has `head.weight`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from hanse_fabric.errors import HanseError, invalid

Model: TypeAlias = Any
"""A mapping or sequence of models; or an array, a torch tensor, or a number."""
_DEEPEST = 32


def by_name(model: Model) -> dict[str, np.ndarray]:
    """All arrays of a model, by name. A number is an array of shape (); a tensor of any device is copied to numpy's.

    Raises:
        HanseError: INVALID_INPUT naming the entry: for what is no array, for two entries of one name, and for numbers
            of a kind that no tensor file has.
    """
    if not isinstance(model, Mapping) and not _is_sequence(model):
        raise invalid("model", type(model).__name__, "a dict or list of arrays, or a module's state_dict()")
    found: dict[str, np.ndarray] = {}
    for name, value in _leaves(model, "", 0):
        if name in found:
            raise invalid("model", name, "one array for each name", hint="two keys on different levels make this name")
        found[name] = _array(name, value)
    if not found:
        raise invalid("model", model, "at least one array")
    return found


def in_form(arrays: Mapping[str, np.ndarray], like: Model) -> Model:
    """Arrays by name in the form of another model: its dicts and lists, with tensors where it has tensors, and numbers
    where it has numbers.

    Raises:
        HanseError: INVALID_INPUT where names or shapes differ.
    """
    expected = by_name(like)
    if odd := sorted(expected.keys() ^ arrays.keys()):
        side = "which only `like` has" if odd[0] in expected else "which `like` does not have"
        raise invalid("like", odd[0], f"the entries of the task's model, and no others: {odd[0]} is one {side}")
    for name, array in arrays.items():
        if array.shape != expected[name].shape:
            raise invalid(f"like entry {name}", expected[name].shape, f"of shape {array.shape}")
    return _formed(like, arrays, "")


def _formed(like: Model, arrays: Mapping[str, np.ndarray], at: str) -> Model:
    if isinstance(like, Mapping):
        return {key: _formed(value, arrays, _below(at, key)) for key, value in like.items()}
    if _is_sequence(like):
        made = [_formed(value, arrays, _below(at, place)) for place, value in enumerate(like)]
        return tuple(made) if isinstance(like, tuple) else made
    array = arrays[at]
    if _is_tensor(like):
        return like.new_tensor(array)  # a copy, of the tensor's own type and device
    if isinstance(like, np.ndarray):
        return array.astype(like.dtype)
    return like.dtype.type(array) if isinstance(like, np.generic) else type(like)(array)


def _leaves(model: Model, at: str, depth: int) -> Iterator[tuple[str, Any]]:
    if depth > _DEEPEST:
        raise invalid("model", at, f"dicts and lists nested at most {_DEEPEST} deep")
    if isinstance(model, Mapping):
        for key, value in model.items():
            yield from _leaves(value, _below(at, key), depth + 1)
    elif _is_sequence(model):
        for place, value in enumerate(model):
            yield from _leaves(value, _below(at, place), depth + 1)
    else:
        yield at, model


def _below(at: str, key: object) -> str:
    if not isinstance(key, str | int) or isinstance(key, bool) or key == "":
        raise invalid(f"model entry {at}", repr(key), "a key that is a text or a whole number")
    return f"{at}.{key}" if at else str(key)


def _is_sequence(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_tensor(value: object) -> bool:
    return any(f"{kind.__module__}.{kind.__name__}" == "torch.Tensor" for kind in type(value).__mro__)


def _array(name: str, value: Any) -> np.ndarray:
    from hanse_fabric.tensors.layout import dtype_name

    if _is_tensor(value):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":  # numpy has no such numbers; float32 holds each of them
            value = value.float()
        value = value.numpy()
    if not isinstance(value, np.ndarray | np.generic | float | int):
        raise invalid(f"model entry {name}", type(value).__name__, "an array, a torch tensor or a number")
    array = np.asarray(value)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    try:
        dtype_name(array.dtype)
    except HanseError:
        raise invalid(
            f"model entry {name}", str(array.dtype), "floats of 16 to 64 bits, whole numbers, or true and false"
        ) from None
    return np.ascontiguousarray(array).reshape(array.shape)
