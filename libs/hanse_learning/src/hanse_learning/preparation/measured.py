"""What a site tells of its table for the preparation: counts, and exact sums in limbs; never a cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import unfit
from hanse_learning.preparation.apply import logarithm
from hanse_learning.preparation.cells import Cells
from hanse_learning.preparation.exact import totals
from hanse_learning.preparation.plan import TARGETS, counted
from hanse_learning.preparation.scales import SQUARE_LIMBS, SUM_LIMBS
from hanse_privacy.ring import limbs
from hanse_schemas.prepare import CategoryRule, NumberRule, Rule, TextRule


def measured(
    rules: Sequence[Rule], table: Mapping[str, Cells], set_aside: int = 0, labels: NDArray[Any] | None = None,
    classes: int = 0,
) -> dict[str, NDArray[np.int64]]:  # fmt: skip
    """The arrays of `plan.counted`, of one table.

    Args:
        table: columns of n cells each (`cells`).
        set_aside: how many bad cells there were, as far as the site tells it.
        labels: (n,) of the rows, where those of each of so many `classes` are counted.

    Raises:
        HanseError: SCHEMA_MISMATCH for a missing cell or a value that a rule refuses.
    """
    for rule in rules:
        _check(rule, table)
    told = counted(rules, classes)
    rows = len(next(iter(table.values())))
    arrays = {"rows": np.array([rows], np.int64), "set_aside": np.array([set_aside], np.int64)}
    if told.missing:
        arrays["missing"] = np.array([_missing(rule, table[rule.name]) for rule in told.missing], np.int64)
    if told.summed:
        pairs = [_totals(rule, table[rule.name]) for rule in told.summed]
        arrays["sums"] = np.array(limbs.split([pair[0] for pair in pairs], SUM_LIMBS), np.int64)
        arrays["squares"] = np.array(limbs.split([pair[1] for pair in pairs], SQUARE_LIMBS), np.int64)
    if told.values:
        arrays["counts"] = np.concatenate([_counts(rule, table[rule.name]) for rule in told.values])
    if classes and labels is not None:
        arrays[TARGETS] = np.bincount(labels.astype(np.int64), minlength=classes).astype(np.int64)
    return arrays


def fewest(rules: Sequence[Rule], table: Mapping[str, Cells]) -> int | None:
    """The cells of the column that has fewest, but some, of those of whose numbers something is told; None: none has
    any."""
    told = [rule for rule in rules if isinstance(rule, NumberRule) and (rule.measured or rule.quantiles)]
    there = [int(np.count_nonzero(~np.isnan(table[rule.name]))) for rule in told]
    return min(filter(None, there), default=None)


def _check(rule: Rule, table: Mapping[str, Cells]) -> None:
    """Refuse what the rule refuses, before the round that would."""
    if isinstance(rule, TextRule):
        return
    cells = table[rule.name]
    if rule.missing == "refuse" and (missing := _missing(rule, cells)):
        raise unfit(f"column {rule.name}: cells are missing, which prepare refuses", missing)
    if isinstance(rule, CategoryRule) and rule.unknown == "refuse" and rule.form != "hashed":
        known = {None, *rule.values}
        if unknown := sum(cell not in known for cell in cells.tolist()):
            raise unfit(f"column {rule.name}: a value is none of the schema's, which prepare refuses", unknown)


def _missing(rule: NumberRule | CategoryRule, cells: Cells) -> int:
    return int(np.isnan(cells).sum()) if rule.kind != "category" else sum(cell is None for cell in cells.tolist())


def _totals(rule: NumberRule, cells: Cells) -> tuple[int, int]:
    there = cells[~np.isnan(cells)]
    return totals(logarithm(there) if rule.log else there)


def _counts(rule: CategoryRule, cells: Cells) -> NDArray[np.int64]:
    """Rows of each declared value, and of all others."""
    places = {value: place for place, value in enumerate(rule.values)}
    found = np.zeros(len(rule.values) + 1, np.int64)
    for cell in cells.tolist():
        if cell is not None:
            found[places.get(cell, -1)] += 1
    return found
