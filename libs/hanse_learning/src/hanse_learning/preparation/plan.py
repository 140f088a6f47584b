"""What sites are asked for a preparation, and what follows from the sums of their answers. Pure, without numpy."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, assert_never

from hanse_fabric.canonical import canonical
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.masking import Ring
from hanse_learning.preparation.order import Search, quantile
from hanse_learning.preparation.scales import SQUARE_FRACTION, SUM_FRACTION
from hanse_privacy.ring import limbs
from hanse_schemas.preparation import Preparation, PreparedCategory, PreparedColumn, PreparedNumber, PreparedText
from hanse_schemas.prepare import MOST_CLASSES, CategoryRule, NumberRule, Rule, TextRule, asks_sums

MOST_BYTES = 96 << 10
"""Of a preparation as JSON: it is in every task."""
_CONSTANT = 10 * sys.float_info.epsilon
"""Quartiles that are nearer are one number, as scikit-learn's RobustScaler has it."""

TARGETS = "targets"
"""The array of rows by class."""
HISTOGRAM = "histogram"
"""The array that answers a question for order statistics."""


@dataclass(frozen=True, slots=True)
class CountedColumns:
    """Which columns are in which array, in the schema's order.

    Attributes:
        missing: (k,) counts of missing cells.
        summed: (k, limbs) `sums` and `squares`.
        values: `counts`: of each, its values' and then all others'.
        classes: (classes,) `targets`: rows of each class; 0: they are not counted.
    """

    missing: tuple[NumberRule | CategoryRule, ...]
    summed: tuple[NumberRule, ...]
    values: tuple[CategoryRule, ...]
    classes: int = 0

    @property
    def arrays(self) -> tuple[str, ...]:
        """Names of the arrays that a site sends."""
        return ("rows", "set_aside", *self._asked)

    @property
    def _asked(self) -> tuple[str, ...]:
        parts: dict[str, tuple[object, ...]] = {
            "missing": self.missing,
            "sums": self.summed,
            "squares": self.summed,
            "counts": self.values,
        }
        parts |= {TARGETS: (self.classes,) if self.classes else ()}
        return tuple(name for name, columns in parts.items() if columns)


def counted(rules: Sequence[Rule], classes: int = 0) -> CountedColumns:
    """What is asked of all sites: nothing that the preparation would be the same without."""
    return CountedColumns(
        tuple(rule for rule in rules if not isinstance(rule, TextRule) and rule.asks_moments),
        tuple(rule for rule in rules if isinstance(rule, NumberRule) and rule.measured),
        tuple(rule for rule in rules if isinstance(rule, CategoryRule) and rule.counted),
        classes,
    )


def classes_in(config: Mapping[str, Any]) -> int:
    """Of how many classes a preparation's task counts the rows; 0: of none.

    Raises:
        HanseError: INVALID_INPUT for what is no such number.
    """
    told = config.get("classes") or 0
    if not isinstance(told, int) or told < 0 or told > MOST_CLASSES or told == 1:
        raise invalid("task.config.classes", told, f"0, or 2 to {MOST_CLASSES}")
    return told


def balanced_weights(rows: Sequence[int]) -> list[float]:
    """What an example of each class counts, so that all classes count alike: n / (k n_c), as scikit-learn's
    `compute_class_weight`.

    Args:
        rows: of each of k classes, over all sites.

    Raises:
        HanseError: INVALID_INPUT for a class of which there is none.
    """
    if 0 in rows:
        raise invalid(
            "train.loss.class_weights", "balanced", f"examples of every class, of {rows.index(0)} there are none",
            hint="write the weights as numbers",
        )  # fmt: skip
    return [sum(rows) / (len(rows) * each) for each in rows]


def rings(arrays: Iterable[str], participants: int) -> dict[str, Ring]:
    """The ring of each array: of counts and limbs below 2^40."""
    return dict.fromkeys(arrays, limbs.ring(participants))


def needs_sums(rules: Sequence[Rule], classes: int | None = None) -> bool:
    """Whether the preparation depends on the sites' data, and not on what job and schema say alone."""
    return asks_sums(rules, classes)


def declared(rules: Sequence[Rule]) -> Preparation:
    """The preparation of rules that need no sums."""
    return fitted(rules, {"rows": [1], "set_aside": [0]})


def search(rules: Sequence[Rule], sums: Mapping[str, Any]) -> Search:
    """For the order statistics that the rules need.

    Args:
        sums: as of `fitted`.

    Raises:
        HanseError: TOO_LARGE.
    """
    rows = int(sums["rows"][0])
    missing = dict(zip((rule.name for rule in counted(rules).missing), sums.get("missing", ()), strict=True))
    return Search.of(rules, {name: rows - int(count) for name, count in missing.items()})


def fitted(
    rules: Sequence[Rule], sums: Mapping[str, Any], ordered: Mapping[str, Mapping[int, float]] | None = None
) -> Preparation:
    """The preparation that follows from all sites' sums.

    Args:
        sums: lists by the names of `CountedColumns.arrays`.
        ordered: what a `search` has found.

    Raises:
        HanseError: INVALID_INPUT where nobody has a row, or sums are not of these rules; TOO_LARGE.
    """
    told = counted(rules)
    if sums.keys() != set(told.arrays):
        raise invalid("sums", sorted(sums), ", ".join(told.arrays))
    rows = int(sums["rows"][0])
    if rows <= 0:
        raise invalid("prepare", f"{rows} rows", "a row or more, over all sites")
    missing, totals = _missing(told, sums), _totals(told, sums)
    counts, at = {}, 0
    for category in told.values:
        counts[category.name] = [int(count) for count in sums["counts"][at : at + len(category.values)]]
        at += len(category.values) + 1
    columns: list[PreparedColumn] = []
    for rule in rules:
        match rule:
            case NumberRule():
                order = (ordered or {}).get(rule.name, {})
                columns.append(_number(rule, rows, missing.get(rule.name, 0), totals.get(rule.name, (0, 0)), order))
            case CategoryRule():
                columns.append(_category(rule, missing.get(rule.name, 0), counts.get(rule.name)))
            case TextRule():
                columns.append(PreparedText(kind="text", name=rule.name))
    found = Preparation(columns=tuple(columns))
    if (size := len(canonical(found.model_dump(mode="json")))) > MOST_BYTES:
        raise HanseError(
            ErrorCode.TOO_LARGE, f"prepare: the preparation has {size} bytes, at most {MOST_BYTES} go with every task",
            hint="fewer columns or values; form: hashed for categories of many values",
        )  # fmt: skip
    return found


def idle(rules: Sequence[Rule], sums: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """(columns without any cell, columns whose cells are all the same), over all sites, as far as the sums tell.

    Args:
        sums: as of `fitted`, which takes them.
    """
    told, rows = counted(rules), int(sums["rows"][0])
    there = {name: rows - count for name, count in _missing(told, sums).items()}
    empty = [name for name, cells in there.items() if not cells]
    same = []
    for name, (total, squares) in _totals(told, sums).items():
        cells = there.get(name, rows)
        if cells > 1 and _is_constant(Fraction(squares, cells << SQUARE_FRACTION) - _mean(total, cells) ** 2):
            same.append(name)
    return empty, same


def _missing(told: CountedColumns, sums: Mapping[str, Any]) -> dict[str, int]:
    """Missing cells by column."""
    return dict(zip((rule.name for rule in told.missing), map(int, sums.get("missing", ())), strict=True))


def _totals(told: CountedColumns, sums: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """(sum, sum of squares) by column, in units of their last bits."""
    pairs = zip(limbs.join(sums.get("sums", ())), limbs.join(sums.get("squares", ())), strict=True)
    return dict(zip((rule.name for rule in told.summed), pairs, strict=True))


def _mean(total: int, cells: int) -> Fraction:
    return Fraction(total, cells << SUM_FRACTION)


def _number(
    rule: NumberRule, rows: int, missing: int, pair: tuple[int, int], ordered: Mapping[int, float]
) -> PreparedNumber:
    there = rows - missing
    total, squares = Fraction(pair[0], 1 << SUM_FRACTION), Fraction(pair[1], 1 << SQUARE_FRACTION)
    order = {rank: _log(cell) for rank, cell in ordered.items()} if rule.log else ordered
    quartiles = [quantile(q, there, order) if there else 0.0 for q in rule.quantiles]
    fill: float | None
    match rule.missing:
        case "mean":
            fill = float(total / there) if there else 0.0
        case "median":
            fill = quartiles[len(quartiles) // 2]
        case "constant":
            fill = _log(rule.constant) if rule.log else rule.constant
        case "refuse":
            fill = None
        case unknown:
            assert_never(unknown)
    centre, scale = 0.0, 1.0
    match rule.scale:
        case "standard":
            # Of the column with its missing cells filled, as a pipeline of imputer and scaler has it.
            filled = Fraction(fill or 0.0)
            mean = (total + missing * filled) / rows
            variance = (squares + missing * filled**2) / rows - mean**2
            centre, scale = float(mean), _deviation(variance)
        case "robust":
            low, centre, high = quartiles
            scale = high - low if high - low >= _CONSTANT else 1.0
        case "minmax":
            if rule.minimum is not None and rule.maximum is not None:
                low, high = (_log(end) if rule.log else end for end in (rule.minimum, rule.maximum))
                centre, scale = low, high - low
        case "none":
            pass
        case unknown_scale:
            assert_never(unknown_scale)
    return PreparedNumber(
        kind=rule.kind, name=rule.name, formats=rule.formats, log=rule.log, fill=fill,
        indicator=bool(missing) if rule.indicator == "auto" else rule.indicator, centre=centre, scale=scale,
    )  # fmt: skip


def _log(number: float) -> float:
    return math.copysign(math.log1p(abs(number)), number)


def _deviation(variance: Fraction) -> float:
    """The standard deviation; 1 of a column that is constant, which becomes 0 everywhere."""
    return 1.0 if _is_constant(variance) else math.sqrt(variance)


def _is_constant(variance: Fraction) -> bool:
    return variance <= Fraction(1, 1 << SQUARE_FRACTION - 40)


def _category(rule: CategoryRule, missing: int, counts: Sequence[int] | None) -> PreparedCategory:
    own = rule.missing == "own" or (rule.missing == "auto" and missing > 0)
    shown = rule.values
    if counts is not None:
        shown = tuple(value for value, count in zip(rule.values, counts, strict=True) if count >= rule.rare)
    return PreparedCategory(
        kind="category", name=rule.name, form=rule.form, values=() if rule.form == "hashed" else shown,
        buckets=rule.buckets if rule.form == "hashed" else 0, unknown=rule.unknown,
        missing="own" if own else "refuse" if rule.missing == "refuse" else "unknown",
    )  # fmt: skip
