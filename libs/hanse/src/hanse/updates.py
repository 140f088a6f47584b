"""Writing an update: what was trained, as a difference to the model that it started from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from hanse_fabric.errors import invalid
from hanse_fabric.tensors.file import read_tensors, write_tensors
from hanse_fabric.tensors.layout import Entry, Rule


def write_update(path: Path, base: Path, trained: Mapping[str, np.ndarray]) -> None:
    """Write `trained` minus the model file `base` (parameters) and its values (buffers), in the model's layout.

    Raises:
        HanseError: INVALID_INPUT naming an entry that is missing, unknown, of another shape or kind, or not finite.
    """
    layout, start = read_tensors(base)
    unknown = sorted(trained.keys() - start.keys())
    if unknown:
        raise invalid("model", unknown, "entries of the task's model")
    arrays = {}
    for entry in layout:
        if entry.name not in trained:
            raise invalid("model", sorted(trained), f"the task's entries; {entry.name} is missing")
        value = _value(entry, trained[entry.name])
        arrays[entry.name] = value - start[entry.name] if entry.rule is Rule.PARAMETER else value
    write_tensors(path, layout, arrays)


def _value(entry: Entry, given: np.ndarray) -> np.ndarray:
    """What was trained of an entry, in the entry's own type."""
    value = np.asarray(given)
    if value.shape != entry.shape:
        raise invalid(f"model entry {entry.name}", value.shape, f"of shape {entry.shape}")
    if not np.can_cast(value.dtype, entry.numpy, casting="same_kind"):
        raise invalid(f"model entry {entry.name}", str(value.dtype), f"of a type that {entry.numpy} can hold")
    typed = value.astype(entry.numpy)
    if not np.isfinite(typed).all():
        raise invalid(f"model entry {entry.name}", "NaN or infinity", "all finite numbers")
    return typed
