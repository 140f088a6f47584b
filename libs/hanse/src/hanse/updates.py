"""Writing an update: what was trained, as a difference to the model that it started from; and a first model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from hanse_fabric.tensors.file import layout_like, read_tensors, write_tensors
from hanse_fabric.tensors.layout import Rule
from hanse_fabric.tensors.trained import fitted


def write_update(path: Path, base: Path, trained: Mapping[str, np.ndarray]) -> None:
    """Write `trained` minus the model file `base` (parameters) and its values (buffers), in the model's layout.

    Raises:
        HanseError: INVALID_INPUT naming an entry that is missing, unknown, of another shape or kind, or not finite.
    """
    layout, start = read_tensors(base)
    arrays = fitted(layout, trained)
    for entry in layout:
        if entry.rule is Rule.PARAMETER:
            arrays[entry.name] = arrays[entry.name] - start[entry.name]
    write_tensors(path, layout, arrays)


def write_first(path: Path, model: Mapping[str, np.ndarray]) -> None:
    """Write a run's first model: floats are parameters, whole numbers buffers.

    Raises:
        HanseError: INVALID_INPUT naming an entry that is not finite.
    """
    layout = layout_like(model)
    write_tensors(path, layout, fitted(layout, model))
