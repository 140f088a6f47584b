"""Metrics of groups of test examples, of which nothing small is told.

A group is told of where it has enough examples of every class. What is not told would follow from the whole less what
is told, where that is little: so further groups are kept back until those that are, taken together, have enough as well
(complementary suppression). It depends on the true classes alone, so that it is the same in every evaluation of a run.
Those with the fewest examples of a class go first, whatever is enough: so of two jobs the one that keeps less back
keeps back none that the other tells, and what both tell leaves no fewer than what one does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import invalid
from hanse_schemas.subgroups import Subgroups

Numbers = NDArray[np.int64]
T = TypeVar("T", np.int64, np.uint64)


def group_of(asked: Subgroups, cells: NDArray[Any]) -> Numbers:
    """The group (n,) of each cell: the place of its value or band; the last for what is missing, or none of them.

    Raises:
        HanseError: INVALID_INPUT for a section that the hub has not completed.
    """
    match asked.kind:
        case "boolean":
            return np.where(np.isnan(cells), 2, np.nan_to_num(cells)).astype(np.int64)
        case "number":
            bands = np.searchsorted(np.array(asked.bands), np.nan_to_num(cells), side="right")
            return np.where(np.isnan(cells), len(asked.bands) + 1, bands).astype(np.int64)
        case "category":
            return _of_values(asked.values, cells)
        case _:
            raise invalid("evaluate.subgroups.kind", asked.kind, "category, boolean or number")


def _of_values(values: tuple[str, ...], cells: NDArray[Any]) -> Numbers:
    places = {value: at for at, value in enumerate(values)}
    return np.array([places.get(cell, len(values)) for cell in cells.tolist()], np.int64)


def told_groups(sizes: Numbers, smallest: int) -> NDArray[np.bool_]:
    """Which groups are told of: (groups,).

    Args:
        sizes: (groups, classes) examples by true class; of regression (groups, 1).
        smallest: so many of each class that there is at all.
    """
    there = sizes[:, sizes.sum(axis=0) > 0]
    told: NDArray[np.bool_] = (there >= smallest).all(axis=1) & (there.sum(axis=1) > 0)
    order = sorted(np.flatnonzero(told).tolist(), key=keep_first(there))
    for at in order:
        hidden = there[~told].sum(axis=0)
        if not hidden.any() or (hidden >= smallest).all():
            break
        told[at] = False
    return told


def keep_first(there: Numbers) -> Callable[[int], tuple[int, ...]]:
    """By what groups (groups, classes) are kept back first. It must not depend on how many are enough."""
    return lambda at: (int(there[at].min()), int(there[at].sum()), at)


def of_groups(
    blocks: NDArray[T], sizes: Numbers, labels: tuple[str, ...], smallest: int,
    measure: Callable[[NDArray[T]], Mapping[str, Any] | None],
) -> dict[str, Any]:  # fmt: skip
    """What is told of groups, as JSON: by name `examples` and metrics; `others` are all that are kept back, together.

    Args:
        blocks: counts (groups, words).
        measure: metrics of counts; None: they are none.
    """
    told = told_groups(sizes, smallest)
    groups = {}
    for at in np.flatnonzero(told).tolist():
        if (found := measure(blocks[at])) is not None:
            groups[labels[at]] = {"examples": int(sizes[at].sum()), **found}
    kept = [label for at, label in enumerate(labels) if not told[at]]
    made: dict[str, Any] = {"smallest": smallest, "groups": groups, "kept_back": kept}
    rest = blocks[~told].sum(axis=0)
    number = int(sizes[~told].sum())
    if groups and number and (others := measure(rest)) is not None:
        made["others"] = {"examples": number, **others}
    return made
