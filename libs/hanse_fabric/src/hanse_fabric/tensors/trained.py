"""What somebody has trained, held against the entries that it was trained from."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hanse_fabric.errors import invalid
from hanse_fabric.tensors.layout import Entry, Layout


def fitted(layout: Layout, trained: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The trained arrays in the layout's own types: each of its entries, and no others.

    Raises:
        HanseError: INVALID_INPUT naming an entry that is missing, unknown, of another shape or kind, or not finite.
    """
    entries = {entry.name: entry for entry in layout}
    if unknown := sorted(trained.keys() - entries.keys()):
        raise invalid("model", unknown, f"entries of the task's model: {', '.join(sorted(entries))[:200]}")
    if missing := sorted(entries.keys() - trained.keys()):
        raise invalid("model", sorted(trained), f"the task's entries; {missing[0]} is missing")
    return {name: typed(entry, trained[name]) for name, entry in entries.items()}


def typed(entry: Entry, given: np.ndarray) -> np.ndarray:
    """An entry's numbers in its own type; raises as `fitted`."""
    value = np.asarray(given)
    if value.shape != entry.shape:
        raise invalid(f"model entry {entry.name}", value.shape, f"of shape {entry.shape}")
    if not np.can_cast(value.dtype, entry.numpy, casting="same_kind"):
        raise invalid(f"model entry {entry.name}", str(value.dtype), f"of a type that {entry.numpy} can hold")
    made = value.astype(entry.numpy)
    if not np.isfinite(made).all():
        raise invalid(f"model entry {entry.name}", "NaN or infinity", "all finite numbers")
    return made
