"""Writing an update: what was trained, as a difference to the model that it started from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from hanse_fabric.errors import invalid
from hanse_fabric.tensors.file import read_tensors, write_tensors
from hanse_fabric.tensors.layout import Rule


def write_update(path: Path, base: Path, trained: Mapping[str, np.ndarray]) -> None:
    """Write `trained` minus the model file `base` (parameters) and its values (buffers), in the model's layout.

    Raises:
        HanseError: INVALID_INPUT naming an entry that is missing, unknown, or of another shape.
    """
    layout, start = read_tensors(base)
    unknown = sorted(trained.keys() - start.keys())
    if unknown:
        raise invalid("model", unknown, "entries of the task's model")
    arrays = {}
    for entry in layout:
        if entry.name not in trained:
            raise invalid("model", sorted(trained), f"the task's entries; {entry.name} is missing")
        value = np.asarray(trained[entry.name])
        if value.shape != entry.shape:
            raise invalid(f"model entry {entry.name}", value.shape, f"of shape {entry.shape}")
        if entry.rule is Rule.PARAMETER:
            arrays[entry.name] = (value - start[entry.name]).astype(entry.numpy)
        else:
            arrays[entry.name] = value.astype(entry.numpy)
    write_tensors(path, layout, arrays)
