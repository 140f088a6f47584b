"""What a site tells of its table for the preparation: counts, and exact sums in limbs; never a cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import unfit
from hanse_learning.preparation.apply import logarithm
from hanse_learning.preparation.cells import Cells, blocks
from hanse_learning.preparation.exact import add, rounded
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
    looks = [_Look(rule) for rule in rules if not isinstance(rule, TextRule)]
    rows = 0
    for block in blocks(table):
        rows += len(next(iter(block.values())))
        for look in looks:
            look.take(block[look.rule.name])
    found = {look.rule.name: look for look in looks}
    for look in looks:
        look.check()
    told = counted(rules, classes)
    arrays = {"rows": np.array([rows], np.int64), "set_aside": np.array([set_aside], np.int64)}
    if told.missing:
        arrays["missing"] = np.array([found[rule.name].missing for rule in told.missing], np.int64)
    if told.summed:
        pairs = [rounded(found[rule.name].sums) for rule in told.summed]
        arrays["sums"] = np.array(limbs.split([pair[0] for pair in pairs], SUM_LIMBS), np.int64)
        arrays["squares"] = np.array(limbs.split([pair[1] for pair in pairs], SQUARE_LIMBS), np.int64)
    if told.values:
        arrays["counts"] = np.concatenate([found[rule.name].counts for rule in told.values])
    if classes and labels is not None:
        arrays[TARGETS] = np.bincount(labels.astype(np.int64), minlength=classes).astype(np.int64)
    return arrays


def fewest(rules: Sequence[Rule], table: Mapping[str, Cells]) -> int | None:
    """The cells of the column that has fewest, but some, of those of whose numbers something is told; None: none has
    any."""
    told = [rule.name for rule in rules if isinstance(rule, NumberRule) and (rule.measured or rule.quantiles)]
    there = dict.fromkeys(told, 0)
    for block in blocks(table):
        for name in told:
            there[name] += int(np.count_nonzero(~np.isnan(block[name])))
    return min(filter(None, there.values()), default=None)


class _Look:
    """What is counted of a column, block by block.

    Attributes:
        missing: cells.
        sums: exact, of a column whose numbers are summed (`exact`).
        counts: rows of each declared value, and of all others.
    """

    def __init__(self, rule: NumberRule | CategoryRule) -> None:
        self.rule = rule
        self.missing = 0
        self.sums: dict[int, list[int]] = {}
        self.counts = np.zeros(len(rule.values) + 1 if isinstance(rule, CategoryRule) else 0, np.int64)

    def take(self, cells: Cells) -> None:
        """Count the next cells."""
        rule = self.rule
        if isinstance(rule, CategoryRule):
            self.missing += sum(cell is None for cell in cells.tolist())
            self.counts += _counts(rule, cells)
            return
        there = cells[~np.isnan(cells)]
        self.missing += len(cells) - len(there)
        if rule.measured:
            add(logarithm(there) if rule.log else there, self.sums)

    def check(self) -> None:
        """Refuse what the rule refuses, before the round that would."""
        rule = self.rule
        if rule.missing == "refuse" and self.missing:
            raise unfit(f"column {rule.name}: cells are missing, which prepare refuses", self.missing)
        if isinstance(rule, CategoryRule) and rule.unknown == "refuse" and rule.form != "hashed" and self.counts[-1]:
            unknown = int(self.counts[-1])
            raise unfit(f"column {rule.name}: a value is none of the schema's, which prepare refuses", unknown)


def _counts(rule: CategoryRule, cells: Cells) -> NDArray[np.int64]:
    """Rows of each declared value, and of all others."""
    places = {value: place for place, value in enumerate(rule.values)}
    found = np.zeros(len(rule.values) + 1, np.int64)
    for cell in cells.tolist():
        if cell is not None:
            found[places.get(cell, -1)] += 1
    return found
