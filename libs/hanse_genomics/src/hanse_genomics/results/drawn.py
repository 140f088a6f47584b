"""A study's results as pages draw and search them: few points of many, the best hits, one SNP by its name. Pure, and
without SciPy: the hub's API stands on it."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_genomics.arrays import Array, Arrays, Floats
from hanse_genomics.files.snps import LABELS

GENOME_WIDE = 5e-8
KEPT_ABOVE = 4.0
"""-log10 p from which every SNP is drawn, as long as there is room."""
_NORMAL = 1.959963984540054
"""97.5 % quantile of the normal distribution."""
_TALL = 40
_END = b"\n"

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Region:
    """A part of the genome: a chromosome by its label, from and to positions, both included; None: all of it."""

    chromosome: str | None = None
    begin: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A SNP's result.

    Attributes:
        a1, a2: its alleles, the minor one over all cohorts first.
        frequency: of A1.
        effect: odds ratio or beta, as `Drawn.effect` says, with its 95 % confidence interval; None: there is none.
        p: 0 where it is smaller than a double can be; `minus_log10_p` tells it then.
    """

    snp: str
    chromosome: str
    position: int
    a1: str
    a2: str
    frequency: float | None
    effect: float | None
    low: float | None
    high: float | None
    p: float | None
    minus_log10_p: float


class Drawn:
    """Results of a study, to be looked at.

    Args:
        arrays: of the output `results`.
        summary: of the output `summary`.

    Raises:
        HanseError: INVALID_INPUT, naming an array that is not there.
    """

    def __init__(self, arrays: Arrays, summary: Mapping[str, Any]) -> None:
        missing = [name for name in ("chromosome", "position", "name", "minor", "log10_p") if name not in arrays]
        if missing or "study" not in summary:
            named = ", ".join(missing) or "study in its summary"
            raise HanseError(ErrorCode.INVALID_INPUT, f"results: no {named}, which every study's have")
        self._arrays, self.summary = arrays, summary
        self.test = str(summary["study"]["test"])
        self.y: Floats = -np.asarray(arrays["log10_p"], np.float64)
        self.code: NDArray[np.int8] = np.asarray(arrays["chromosome"], np.int8)
        self.position: NDArray[np.int64] = np.asarray(arrays["position"], np.int64)

    def __len__(self) -> int:
        return len(self.y)

    @property
    def effect(self) -> str:
        """What `Hit.effect` is; empty where the test tells none."""
        return {"linear": "beta", "trend": ""}.get(self.test, "odds ratio")

    @cached_property
    def order(self) -> Rows:
        """Tested SNPs, the smallest p first; of equals the first in the genome."""
        there = np.flatnonzero(np.isfinite(self.y))
        return there[np.argsort(-self.y[there], kind="stable")]

    def below(self, p: float) -> int:
        """How many tested SNPs have such a p or a smaller one."""
        return int((self.y >= -np.log10(p)).sum())

    def places(self) -> list[tuple[str, int, int]]:
        """Chromosomes in order, each with its smallest and its largest position."""
        found = []
        for code in np.unique(self.code).tolist():
            here = self.position[self.code == code]
            found.append((LABELS[code], int(here.min()), int(here.max())))
        return found

    def points(self, most: int, region: Region) -> tuple[Rows, int]:
        """Which tested SNPs of a region a picture shows, in genome order, and how many there are.

        First come those with the smallest p, down to `KEPT_ABOVE` and at most half of the room; of the others one for
        each cell of a grid over the picture.

        Raises:
            HanseError: NOT_FOUND for a chromosome that the study does not have.
        """
        there = self._within(region)
        if len(there) <= most:
            return there, len(there)
        y = self.y[there]
        high = np.flatnonzero(y >= KEPT_ABOVE)
        high = high[np.argsort(-y[high], kind="stable")][: most // 2]
        rest = np.setdiff1d(np.arange(len(there)), high, assume_unique=True)
        first = _one_of_each_cell(rest / len(there), np.minimum(y[rest], KEPT_ABOVE) / KEPT_ABOVE, most - len(high))
        return there[np.sort(np.concatenate([high, rest[first]]))], len(there)

    def quantiles(self, most: int) -> tuple[Floats, Floats]:
        """Expected and observed -log10 p, largest first: the first half one by one, then evenly along the axis."""
        observed = self.y[self.order]
        number = len(observed)
        expected = -np.log10((np.arange(1, number + 1) - 0.5) / max(number, 1))
        if number <= most:
            return expected, observed
        least = expected[most // 2]
        cells = np.floor(expected / least * (most - most // 2 - 2))
        _, first = np.unique(-cells[most // 2 :], return_index=True)
        keep = np.unique(np.concatenate([np.arange(most // 2), most // 2 + first, [number - 1]]))
        return expected[keep], observed[keep]

    def hits(self, *, contains: str, after: int, limit: int) -> tuple[list[tuple[int, Hit]], int]:
        """SNPs by their rank (0 has the smallest p), from that behind `after` on, and how many there are in all.

        Args:
            contains: part of a name, in any case; or `chromosome:position`, or `chromosome:from-to`; empty: all.
        """
        wanted = self.order if not contains else self._found(contains)
        part = wanted[after : after + limit]
        return [(after + at, self.hit(int(row))) for at, row in enumerate(part)], len(wanted)

    def hit(self, row: int) -> Hit:
        """One SNP."""
        first, second = self._word("first", row), self._word("second", row)
        turned = bool(self._arrays["minor"][row] == 1)
        effect, low, high = self._effect(row)
        return Hit(
            snp=self.name(row), chromosome=LABELS[self.code[row]], position=int(self.position[row]),
            a1=second if turned else first, a2=first if turned else second, frequency=self._number("maf", row),
            effect=effect, low=low, high=high, p=self._number("p", row), minus_log10_p=float(self.y[row]),
        )  # fmt: skip

    def name(self, row: int) -> str:
        """A SNP's name."""
        return self._word("name", row)

    def _effect(self, row: int) -> tuple[float | None, float | None, float | None]:
        if self.test == "trend":
            return None, None, None
        error = self._number("se", row)
        beta = self._number("beta", row)
        if self.test == "chi_square":
            odds = self._number("odds_ratio", row)
            beta = None if odds is None or odds <= 0 else float(np.log(odds))
        if beta is None:
            return None, None, None
        ends = (None, None) if error is None else (beta - _NORMAL * error, beta + _NORMAL * error)
        told = (beta, *ends)
        if self.test == "linear":
            return told
        with np.errstate(over="ignore"):
            shown = [None if each is None else float(np.exp(each)) for each in told]
        return tuple(each if each is None or np.isfinite(each) else None for each in shown)  # type: ignore[return-value]

    def _number(self, name: str, row: int) -> float | None:
        if name not in self._arrays:
            return None
        value = float(self._arrays[name][row])
        return value if np.isfinite(value) else None

    def _within(self, region: Region) -> Rows:
        chosen = np.isfinite(self.y)
        if region.chromosome is not None:
            chosen &= self.code == self._code(region.chromosome)
        if region.begin is not None:
            chosen &= self.position >= region.begin
        if region.end is not None:
            chosen &= self.position <= region.end
        return np.flatnonzero(chosen)

    def _code(self, label: str) -> int:
        there = [LABELS[code] for code in np.unique(self.code).tolist()]
        if label not in there:
            raise HanseError(
                ErrorCode.NOT_FOUND, f"chromosome: this study has no {label!r}", hint=f"it has {', '.join(there)}"
            )
        return LABELS.index(label)

    def _found(self, contains: str) -> Rows:
        """Rows of `order` that a search finds."""
        chosen = np.zeros(len(self), bool)
        label, colon, span = contains.partition(":")
        begin, _, end = span.partition("-")
        if colon and label.upper() in LABELS and begin.isdecimal() and (not end or end.isdecimal()):
            code = LABELS.index(label.upper())
            last = int(end or begin)
            chosen = (self.code == code) & (self.position >= int(begin)) & (self.position <= last)
        else:
            chosen[list(self._named(contains))] = True
        return self.order[chosen[self.order]]

    def _named(self, part: str) -> Iterator[int]:
        """Rows whose name has this part: found in the joined names, of which each ends by a line feed."""
        text, ends = self._lower, self._ends("name")
        wanted = part.lower().encode()
        at = text.find(wanted) if _END not in wanted else -1
        while at >= 0:
            row = bisect.bisect_left(ends, at)
            yield row
            at = text.find(wanted, int(ends[row]) + 1)

    @cached_property
    def _lower(self) -> bytes:
        return np.asarray(self._arrays["name"], np.uint8).tobytes().lower()

    def _word(self, array: str, row: int) -> str:
        ends = self._ends(array)
        begin = 0 if row == 0 else int(ends[row - 1]) + 1
        packed: Array = self._arrays[array]
        return packed[begin : int(ends[row])].tobytes().decode(errors="replace")

    def _ends(self, array: str) -> Rows:
        if array not in self._breaks:
            self._breaks[array] = np.flatnonzero(np.asarray(self._arrays[array]) == _END[0])
        return self._breaks[array]

    @cached_property
    def _breaks(self) -> dict[str, Rows]:
        return {}


def _one_of_each_cell(x: Floats, y: Floats, most: int) -> Rows:
    """The first of the points in each cell of a grid that is as fine as `most` points allow; x, y from 0 to 1."""
    wide = max(1, most // 2)
    while True:
        cells = np.floor(x * wide) * (_TALL + 1) + np.floor(y * _TALL)
        _, first = np.unique(cells, return_index=True)
        if len(first) <= most or wide == 1:
            return first[:most]
        wide = max(1, min(wide - 1, wide * most // len(first)))
