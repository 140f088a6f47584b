"""Order statistics of all sites' cells, exact to the bit: numbers are 64 bits that sort as they do, and sums of counts
tell the next few bits of each that is looked for. Pure, without numpy; `histograms` is the sites' part.

A site is asked at most `PASSES` times in a run, of each column at most `MOST_PREFIXES` times 2^bits counts.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from pydantic import Field, ValidationError, model_validator

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.base import Frozen
from hanse_fabric.messages.explained import explain
from hanse_schemas.prepare import MOST_COLUMNS, NumberRule, Rule

KEY_BITS = 64
FINE, COARSE = 8, 4
"""Bits that one pass tells: of few order statistics, and of many."""
PASSES = KEY_BITS // COARSE
MOST_PREFIXES = 6
"""Of a column: below and above each of three quartiles."""
_FEW, MOST_SOUGHT = 32, 512
"""Order statistics that one pass tells FINE bits of, and COARSE ones, so that the counts travel as facts of a step."""

_SIGN = 1 << KEY_BITS - 1


class PrefixQuestion(Frozen):
    """What one pass asks of all sites: of each column, how many cells begin with each prefix and the next bits.

    Attributes:
        depth: bits that the prefixes have; bits: further ones that are counted.
        prefixes: by column, ascending.
    """

    depth: int = Field(ge=0, lt=KEY_BITS)
    bits: Literal[4, 8]
    prefixes: dict[str, tuple[int, ...]] = Field(min_length=1, max_length=MOST_COLUMNS)

    @model_validator(mode="after")
    def _bounded(self) -> PrefixQuestion:
        """Raise ValueError for more than one pass of a run asks."""
        if self.depth % self.bits:
            raise ValueError(f"depth: {self.depth} is no multiple of {self.bits}")
        for name, prefixes in self.prefixes.items():
            if not 0 < len(prefixes) <= MOST_PREFIXES or list(prefixes) != sorted(set(prefixes)):
                raise ValueError(f"prefixes of {name}: 1 to {MOST_PREFIXES} that ascend were expected")
            if prefixes[0] < 0 or prefixes[-1] >= 1 << self.depth:
                raise ValueError(f"prefixes of {name}: {self.depth} bits each were expected")
        return self


def question_of(given: object, rules: Iterable[Rule]) -> PrefixQuestion:
    """The question of a task.

    Raises:
        HanseError: INVALID_INPUT for one that is none, or of columns whose rules need no order statistics.
    """
    try:
        found = PrefixQuestion.model_validate(given)
    except ValidationError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"task.config.quantiles: {explain(error)}") from None
    sought = {rule.name for rule in rules if isinstance(rule, NumberRule) and rule.quantiles}
    if strangers := sorted(found.prefixes.keys() - sought):
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"task.config.quantiles: {strangers[0]}: its rule needs no order statistics"
        )
    return found


@dataclass(slots=True)
class _Sought:
    """An order statistic: its place among the cells that begin with the prefix, which are so many."""

    name: str
    rank: int
    within: int
    among: int
    prefix: int = 0


@dataclass(slots=True)
class Search:
    """Finds order statistics by asking and taking answers in turn."""

    sought: list[_Sought]
    depth: int = 0
    bits: int = field(init=False)

    def __post_init__(self) -> None:
        self.bits = FINE if len(self.sought) <= _FEW else COARSE

    @classmethod
    def of(cls, rules: Iterable[Rule], there: Mapping[str, int]) -> Search:
        """For all that the rules need.

        Args:
            there: cells of each column that are not missing, over all sites.

        Raises:
            HanseError: TOO_LARGE.
        """
        sought = [
            _Sought(rule.name, rank, rank, there[rule.name])
            for rule in rules
            if isinstance(rule, NumberRule)
            for rank in sorted({rank for q in rule.quantiles for rank in ranks(q, there[rule.name])})
        ]
        if len(sought) > MOST_SOUGHT:
            raise HanseError(
                ErrorCode.TOO_LARGE, f"prepare: {len(sought)} order statistics, at most {MOST_SOUGHT} are found",
                hint="scale: standard and missing: mean for some of the columns",
            )  # fmt: skip
        return cls(sought)

    @property
    def question(self) -> PrefixQuestion | None:
        """The next; None: all are found."""
        if self.depth == KEY_BITS or not self.sought:
            return None
        return PrefixQuestion.model_validate({"depth": self.depth, "bits": self.bits, "prefixes": self._prefixes()})

    def take(self, histograms: Sequence[Sequence[int]]) -> None:
        """Go on with the sums of all sites' `histograms`.

        Raises:
            ValueError: where they are not of the question, or of other cells than before.
        """
        places = [(name, prefix) for name, prefixes in self._prefixes().items() for prefix in prefixes]
        told = dict(zip(places, histograms, strict=True))
        for one in self.sought:
            counts = [int(count) for count in told[one.name, one.prefix]]
            if len(counts) != 1 << self.bits or sum(counts) != one.among or min(counts) < 0:
                raise ValueError(f"{one.name}: the counts are not of {one.among} cells")
            digit = 0
            while one.within >= counts[digit]:
                one.within -= counts[digit]
                digit += 1
            one.prefix, one.among = one.prefix << self.bits | digit, counts[digit]
        self.depth += self.bits

    @property
    def found(self) -> dict[str, dict[int, float]]:
        """The cells by column and rank, once all are found."""
        made: dict[str, dict[int, float]] = {}
        for one in self.sought:
            made.setdefault(one.name, {})[one.rank] = number_of(one.prefix)
        return made

    def _prefixes(self) -> dict[str, list[int]]:
        found: dict[str, set[int]] = {}
        for one in self.sought:
            found.setdefault(one.name, set()).add(one.prefix)
        return {name: sorted(prefixes) for name, prefixes in found.items()}


def ranks(q: Fraction, count: int) -> tuple[int, ...]:
    """The order statistics, from 0, between which a quantile of so many cells lies (Hyndman and Fan, 1996, type 7)."""
    place = (count - 1) * q
    return (math.floor(place), math.ceil(place)) if count else ()


def quantile(q: Fraction, count: int, of_rank: Mapping[int, float]) -> float:
    """The quantile by linear interpolation; see `ranks`.

    Args:
        of_rank: the order statistics.
    """
    low, high = ranks(q, count)
    share = float((count - 1) * q - low)
    below, above = of_rank[low], of_rank[high]
    return below + (above - below) * share if share < 0.5 else above - (above - below) * (1 - share)


def number_of(key: int) -> float:
    """The number of a key: its 64 bits, the sign turned over, and all the others too where it is negative."""
    bits = key ^ _SIGN if key & _SIGN else key ^ (1 << KEY_BITS) - 1
    (number,) = struct.unpack(">d", bits.to_bytes(8, "big"))
    return float(number)
