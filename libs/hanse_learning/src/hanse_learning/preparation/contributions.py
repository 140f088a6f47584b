"""A site's part of the vector that a preparation under differential privacy releases (`noisy`), before its noise.

Whoever is hidden counts as one row: an example as itself, a person by the mean of their rows, a site by that of all.
So each adds a vector whose norm is known to the sum, whatever the data are.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from hanse_learning.preparation.apply import logarithm
from hanse_learning.preparation.cells import Cells
from hanse_learning.preparation.noisy import BINS, STEP, Part, Released, scaled_ends
from hanse_schemas.prepare import CategoryRule, NumberRule

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


def contributed(
    vector: Released, table: Mapping[str, Cells], rows: int, *, labels: NDArray[np.int64] | None = None,
    whose: NDArray[np.int64] | None = None,
) -> Integers:  # fmt: skip
    """The numbers (k,) of one table, in steps.

    Args:
        table: columns of (rows,) cells each.
        labels: (rows,) classes, where these are counted.
        whose: (rows,) whose each row is, where people are hidden; None: each row is somebody's own. Not read where
            sites are.
    """
    if rows == 0:
        return np.zeros(vector.size, np.int64)
    counting = _Counting.of(rows, np.zeros(rows, np.int64) if vector.of_sites else whose)
    return np.concatenate([_part(part, table, counting, labels) for part in vector.parts])


def _part(part: Part, table: Mapping[str, Cells], counting: _Counting, labels: NDArray[np.int64] | None) -> Integers:
    rule = part.rule
    match part.what, rule:
        case "rows", _:
            return counting.total(np.ones(counting.rows))
        case "targets", _:
            if labels is None:
                return np.zeros(part.width, np.int64)
            return counting.histogram(labels, part.width)
        case "values", CategoryRule():
            places = {value: place for place, value in enumerate(rule.values)}
            others = len(rule.values)
            cells = table[rule.name].tolist()
            return counting.histogram(
                np.array([-1 if cell is None else places.get(cell, others) for cell in cells]), part.width
            )
        case "missing", CategoryRule():
            return counting.total(np.array([float(cell is None) for cell in table[rule.name].tolist()]))
        case "missing", NumberRule():
            return counting.total(np.isnan(table[rule.name]).astype(np.float64))
        case what, NumberRule():
            scaled = _scaled(rule, table[rule.name])
            there = ~np.isnan(scaled)
            numbers = np.where(there, scaled, 0.0)
            if what == "moments":
                return np.concatenate(
                    [counting.total(numbers), counting.total(np.where(there, 1.0 - numbers**2, 0.0))]
                )  # fmt: skip
            bins = np.minimum(((numbers + 1) / 2 * BINS).astype(np.int64), BINS - 1)
            return counting.histogram(np.where(there, bins, -1), BINS)
        case _:
            raise AssertionError(part)


def _scaled(rule: NumberRule, cells: Cells) -> Floats:
    """The cells between -1 and 1, those beyond the column's ends cut; NaN where they are missing."""
    middle, half = scaled_ends(rule)
    numbers = logarithm(cells) if rule.log else cells
    scaled: Floats = np.clip((numbers - middle) / half, -1.0, 1.0)
    return scaled


class _Counting:
    """Sums over those who are hidden, each of whom adds the mean of their rows, rounded to a step.

    Attributes:
        rows: of the table.
    """

    def __init__(self, rows: int, whose: NDArray[np.int64] | None, share: Floats | None) -> None:
        self.rows, self._whose, self._share = rows, whose, share

    @classmethod
    def of(cls, rows: int, whose: NDArray[np.int64] | None) -> _Counting:
        if whose is None:
            return cls(rows, None, None)
        _, place, counts = np.unique(whose, return_inverse=True, return_counts=True)
        return cls(rows, place, 1.0 / counts)

    def total(self, values: Floats) -> Integers:
        """Of numbers (rows,) between -1 and 1: (1,)."""
        if self._whose is not None and self._share is not None:
            means = np.bincount(self._whose, values, len(self._share)) * self._share
            values = np.clip(means, -1.0, 1.0)
        return np.array([np.rint(values * STEP).astype(np.int64).sum()], np.int64)

    def histogram(self, places: NDArray[np.int64], width: int) -> Integers:
        """How many are at each place (width,); -1: at none."""
        if self._whose is None:
            return np.bincount(places[places >= 0], minlength=width).astype(np.int64) * STEP
        return np.concatenate([self.total((places == place).astype(np.float64)) for place in range(width)])
