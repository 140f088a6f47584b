"""What sites are asked for a preparation under differential privacy, and what follows from the noisy sum. Pure, without
numpy.

All that the rules need is one vector of whole numbers in steps of 2^-24, released once: counts, and of each number x,
cut to its column's ends and mapped to -1..1, the sums of x and of 1 - x^2. Of one row these two have an L2 norm of at
most 1 (x^2 + (1 - x^2)^2 <= 1) and an L1 norm of at most 5/4, so a column costs no more than a count. Quartiles are
read from a histogram of `BINS` bins between the ends.

One person's rows are counted by their mean, as one row is; so are one site's, where whole sites are hidden.

What noise has made of a number is set right without looking at the data again: means and variances are drawn towards
those of a column of which nothing is known, as the noise is larger than they are (the posterior mean of a normal
prior), cumulated histograms are made to ascend (isotonic regression), and counts are not negative. Without noise
nothing is changed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.masking import Ring
from hanse_learning.preparation.isotonic import ascending
from hanse_learning.preparation.order import ranks
from hanse_learning.preparation.plan import fitted
from hanse_learning.preparation.scales import SQUARE_FRACTION, SUM_FRACTION
from hanse_privacy.ring.plan import whole_numbers
from hanse_schemas.preparation import Preparation
from hanse_schemas.prepare import CategoryRule, NumberRule, Rule

GRID = 24
STEP = 1 << GRID
"""Steps that one row, or person, or site, counts."""
BINS = 32
"""Of a column's cells between its ends."""
MOST_NUMBERS = 6000
"""Of the vector, whose sum travels as facts of one step: nobody is charged for what cannot be told then."""
NOISY, VARIANCE = "noisy", "variance"
"""The vector (k,), and (1,) the variance of the site's noise in each of its numbers, in 2^-8 squared rows."""
_VARIANCE_STEPS = 256
_MOST_VARIANCE = 1 << 50
_MEAN_SPREAD, _USUAL_VARIANCE, _VARIANCE_SPREAD = 0.5, 0.1, 0.1
"""Of columns between ends -1 and 1, before anything is known: the deviation of their means; their variance, and its."""
_SURE = 2.0
"""Deviations of the noise, above which there are missing cells where the rule is `auto`."""

What = Literal["rows", "missing", "moments", "histogram", "values", "targets"]


@dataclass(frozen=True, slots=True)
class Part:
    """Some numbers of the vector, of one column or none.

    Attributes:
        width: how many.
    """

    what: What
    rule: NumberRule | CategoryRule | None
    width: int


@dataclass(frozen=True, slots=True)
class Released:
    """The vector that a preparation releases.

    Attributes:
        parts: in the vector's order.
        of_sites: whether whole sites are hidden; then each is as one row, and their number is known.
    """

    parts: tuple[Part, ...]
    of_sites: bool

    @property
    def size(self) -> int:
        """Numbers of the vector."""
        return sum(part.width for part in self.parts)

    @property
    def norms(self) -> tuple[float, float]:
        """(L1, L2) in steps: what one row, or person, changes the vector by, there or not; or what one site does,
        replaced by any other. With what rounding each number to a step adds."""
        l1 = squared = 0.0
        for parts in self._together():
            # A cell is missing, or it is in the column's other parts.
            others = [1.25 if part.what == "moments" else 1.0 for part in parts if part.what != "missing"]
            l1 += max(1.0, sum(others))
            squared += max(1, len(others))
        times = 2 if self.of_sites else 1
        return times * (l1 * STEP + self.size), times * (math.sqrt(squared) * STEP + math.sqrt(self.size))

    def _together(self) -> list[list[Part]]:
        """The parts of each column, and those of none each by itself."""
        columns: dict[tuple[str, str], list[Part]] = {}
        for part in self.parts:
            named = (part.what, "") if part.rule is None else ("", part.rule.name)
            columns.setdefault(named, []).append(part)
        return list(columns.values())


def released(rules: Sequence[Rule], classes: int = 0, *, of_sites: bool) -> Released:
    """What is asked of all sites: nothing that the preparation would be the same without.

    Args:
        classes: of the target, whose rows are counted; 0: they are not.

    Raises:
        HanseError: TOO_LARGE for more than `MOST_NUMBERS`.
    """
    parts = [] if of_sites else [Part("rows", None, 1)]
    for rule in rules:
        if isinstance(rule, NumberRule | CategoryRule) and rule.asks_moments:
            parts.append(Part("missing", rule, 1))
        if isinstance(rule, NumberRule) and rule.measured:
            parts.append(Part("moments", rule, 2))
        if isinstance(rule, NumberRule) and rule.quantiles:
            parts.append(Part("histogram", rule, BINS))
        if isinstance(rule, CategoryRule) and rule.counted:
            parts.append(Part("values", rule, len(rule.values) + 1))
    if classes:
        parts.append(Part("targets", None, classes))
    vector = Released(tuple(parts), of_sites)
    if vector.size > MOST_NUMBERS:
        raise HanseError(
            ErrorCode.TOO_LARGE, f"prepare: {vector.size} numbers with noise, at most {MOST_NUMBERS} are told together",
            hint="scale: standard and missing: mean for some of the columns; rare: 0 for categories of many values",
        )  # fmt: skip
    return vector


def require_ends(rules: Sequence[Rule]) -> None:
    """Check that every column that is summed has ends.

    Raises:
        HanseError: INVALID_INPUT naming the first that has none.
    """
    for rule in rules:
        if isinstance(rule, NumberRule) and (rule.measured or rule.quantiles) and rule.ends is None:
            raise invalid(
                f"prepare.columns: {rule.name}.clip", None, "[low, high], or minimum and maximum in the project's "
                "schema: sums have noise for cells between known ends",
                hint="choose them by what is known of such columns, not from the data: they are in every task",
            )  # fmt: skip


def noisy_rings(participants: int) -> dict[str, Ring]:
    """The ring of each array that a site sends: one element for each number, of which nobody sees but the sum."""
    return dict.fromkeys((NOISY, VARIANCE), whole_numbers(participants))


def told_variance(variance: float) -> int:
    """What a site says of its noise's variance, in squares of steps: the same for any data."""
    return min(_MOST_VARIANCE, max(1, math.ceil(variance / STEP**2 * _VARIANCE_STEPS)))


def scaled_ends(rule: NumberRule) -> tuple[float, float]:
    """(middle, half the distance) of the column's ends, after the logarithm where the rule has it.

    Raises:
        HanseError: INVALID_INPUT where there are none.
    """
    if rule.ends is None:
        raise invalid(f"prepare.columns: {rule.name}.clip", None, "[low, high]")
    low, high = (math.copysign(math.log1p(abs(end)), end) if rule.log else end for end in rule.ends)
    return (low + high) / 2, (high - low) / 2


def settled(
    rules: Sequence[Rule], classes: int, sums: Mapping[str, Any], *, of_sites: bool, members: int
) -> tuple[Preparation, tuple[int, ...]]:
    """(the preparation that follows from the noisy sum, rows of each class, at least 1).

    Args:
        sums: lists by the names of `noisy_rings`.
        members: sites of the sum.

    Raises:
        ValueError: where the sum is not of these rules.
        HanseError: as of `plan.fitted`.
    """
    vector = released(rules, classes, of_sites=of_sites)
    numbers, (variance,) = [int(number) for number in sums[NOISY]], sums[VARIANCE]
    if len(numbers) != vector.size or int(variance) < 0:
        raise ValueError(f"{len(numbers)} noisy numbers, {vector.size} were expected")
    told: dict[tuple[What, str], list[int]] = {}
    at = 0
    for part in vector.parts:
        told[part.what, part.rule.name if part.rule else ""] = numbers[at : at + part.width]
        at += part.width
    return _Settling(told, math.sqrt(int(variance) / _VARIANCE_STEPS) * STEP, members).of(rules, classes)


@dataclass(frozen=True, slots=True)
class _Settling:
    """Sets a noisy sum right.

    Attributes:
        told: numbers in steps, by part and column.
        noise: standard deviation of each, in steps.
        members: sites, where the number of rows is not told.
    """

    told: Mapping[tuple[What, str], Sequence[int]]
    noise: float
    members: int

    def of(self, rules: Sequence[Rule], classes: int) -> tuple[Preparation, tuple[int, ...]]:
        rows = max(STEP, self.told["rows", ""][0]) if ("rows", "") in self.told else self.members * STEP
        sums: dict[str, Any] = {"rows": [rows], "set_aside": [0]}
        ordered: dict[str, dict[int, float]] = {}
        for rule in rules:
            if not isinstance(rule, NumberRule | CategoryRule):
                continue
            missing = self._missing(rule.name, rows)
            if rule.asks_moments:
                sums.setdefault("missing", []).append(missing)
            if isinstance(rule, CategoryRule):
                if rule.counted:
                    counts = [max(0, round(count / STEP)) for count in self.told["values", rule.name]]
                    sums.setdefault("counts", []).extend(counts)
                continue
            there = rows - missing
            if rule.measured:
                total, squares = self._moments(rule, there)
                sums.setdefault("sums", []).append([total])
                sums.setdefault("squares", []).append([squares])
            if rule.quantiles:
                found = self._quantiles(rule)
                # Ranks in steps: both of a quartile are the one cell that was found for it.
                ordered[rule.name] = {
                    rank: cell for q, cell in found.items() for rank in ranks(q, there)
                }  # fmt: skip
        rows_of = tuple(
            max(1, round(max(count, self.noise) / STEP)) for count in (self.told["targets", ""] if classes else ())
        )
        return fitted(rules, sums, ordered), rows_of

    def _missing(self, name: str, rows: int) -> int:
        if ("missing", name) not in self.told:
            return 0
        (missing,) = self.told["missing", name]
        there = max(1, round(min(self.noise, rows / 2)))
        return 0 if missing <= _SURE * self.noise else min(missing, rows - there)

    def _moments(self, rule: NumberRule, there: int) -> tuple[int, int]:
        """(sum, sum of squares) of the column, as `plan.fitted` takes them, of `there` steps of rows."""
        first, rest = self.told["moments", rule.name]
        noise = self.noise / there
        mean = max(-1.0, min(1.0, first / there)) if noise else Fraction(first, there)
        if noise:
            mean *= _MEAN_SPREAD**2 / (_MEAN_SPREAD**2 + noise**2)
        mean = Fraction(mean)
        variance = Fraction(there - rest, there) - mean**2
        if noise:
            kept = _VARIANCE_SPREAD**2 / (_VARIANCE_SPREAD**2 + noise**2)
            drawn = kept * float(variance) + (1 - kept) * _USUAL_VARIANCE
            variance = Fraction(min(1 - float(mean) ** 2 + 1e-9, max(drawn, min(_USUAL_VARIANCE, noise) / 4)))
        middle, half = map(Fraction, scaled_ends(rule))
        raw = there * (middle + half * mean)
        squares = there * (half**2 * (variance + mean**2) + 2 * middle * half * mean + middle**2)
        return round(raw * (1 << SUM_FRACTION)), round(squares * (1 << SQUARE_FRACTION))

    def _quantiles(self, rule: NumberRule) -> dict[Fraction, float]:
        """The column's quantiles, as raw cells."""
        cumulated, total = [], 0
        for count in self.told["histogram", rule.name]:
            total += count
            cumulated.append(float(total))
        curve = [max(0.0, number) for number in ascending(cumulated)]
        if curve[-1] <= 0:
            curve = [float(place) for place in range(1, BINS + 1)]
        middle, half = scaled_ends(rule)
        found = {}
        for q in rule.quantiles:
            sought = float(q) * curve[-1]
            place = next(place for place, reached in enumerate(curve) if reached >= sought and reached > 0)
            below = curve[place - 1] if place else 0.0
            share = (sought - below) / (curve[place] - below) if curve[place] > below else 1.0
            cell = middle + half * (2 * (place + share) / BINS - 1)
            found[q] = math.copysign(math.expm1(abs(cell)), cell) if rule.log else cell
        return found
