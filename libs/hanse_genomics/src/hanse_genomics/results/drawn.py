"""A study's results as pages draw and search them: few points of many, the best hits, one SNP by its name. Pure, and
without SciPy: the hub's API stands on it."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_genomics.arrays import Array, Arrays, Floats
from hanse_genomics.files.snps import LABELS
from hanse_schemas.http.studies import (
    ChromosomeView,
    HitList,
    HitsQuery,
    HitView,
    PointsQuery,
    StudyPoints,
    StudyQuantiles,
    StudyView,
)

GENOME_WIDE = 5e-8
KEPT_ABOVE = 4.0
"""-log10 p from which every SNP is drawn, as long as there is room."""
_NORMAL = 1.959963984540054
"""97.5 % quantile of the normal distribution."""
_DIGITS = 6
"""That a plot's numbers are told with."""
_TALL = 40
_END = b"\n"
_EFFECTS = {"chi_square": "odds ratio", "trend": "", "linear": "beta", "logistic": "odds ratio"}
"""What each test tells of a SNP's effect."""

Rows = NDArray[np.int64]


class Drawn:
    """Results of a study, to be looked at.

    Args:
        arrays: of the output `results`.
        summary: of the output `summary`.

    Raises:
        HanseError: INVALID_INPUT, naming an array that is not there, or a test that is not known here.
    """

    def __init__(self, arrays: Arrays, summary: Mapping[str, Any]) -> None:
        missing = [name for name in ("chromosome", "position", "name", "minor", "log10_p") if name not in arrays]
        if missing or "study" not in summary:
            named = ", ".join(missing) or "study in its summary"
            raise HanseError(ErrorCode.INVALID_INPUT, f"results: no {named}, which every study's have")
        self._arrays, self.summary = arrays, summary
        self.test = str(summary["study"]["test"])
        if self.test not in _EFFECTS:
            raise invalid("results: study.test", self.test, "one of " + ", ".join(_EFFECTS))
        self.y: Floats = -np.asarray(arrays["log10_p"], np.float64)
        self.code: NDArray[np.int8] = np.asarray(arrays["chromosome"], np.int8)
        self.position: NDArray[np.int64] = np.asarray(arrays["position"], np.int64)

    def __len__(self) -> int:
        return len(self.y)

    @property
    def effect(self) -> str:
        """What `HitView.effect` is; empty where the test tells none."""
        return _EFFECTS[self.test]

    @cached_property
    def order(self) -> Rows:
        """Tested SNPs, the smallest p first; of equals the first in the genome."""
        there = np.flatnonzero(np.isfinite(self.y))
        return there[np.argsort(-self.y[there], kind="stable")]

    def view(self, digest: str) -> StudyView:
        """The study in a few numbers.

        Args:
            digest: of the output `results`, which this was read from.
        """
        tested = len(self.order)
        level = 0.05 / max(tested, 1)
        inflation = self.summary.get("lambda")
        return StudyView(
            digest=digest,
            test=self.test,
            snps=len(self),
            tested=tested,
            genome_wide=self._below(GENOME_WIDE),
            bonferroni=self._below(level),
            level=level,
            inflation=float(inflation) if isinstance(inflation, int | float) else None,
            effect=self.effect,
            chromosomes=tuple(self._chromosomes()),
            summary={name: told for name, told in self.summary.items() if name != "lambda"},
        )

    def _below(self, p: float) -> int:
        """How many tested SNPs have such a p or a smaller one."""
        return int((self.y >= -np.log10(p)).sum())

    def _chromosomes(self) -> Iterator[ChromosomeView]:
        for code in np.unique(self.code).tolist():
            here = self.position[self.code == code]
            yield ChromosomeView(chromosome=LABELS[code], begin=int(here.min()), end=int(here.max()))

    def points(self, query: PointsQuery) -> StudyPoints:
        """Tested SNPs of a region that a picture shows, in genome order.

        First come those with the smallest p, down to `KEPT_ABOVE` and at most half of the room; of the others one for
        each cell of a grid over the picture.

        Raises:
            HanseError: NOT_FOUND for a chromosome that the study does not have.
        """
        there = self._within(query)
        rows = self._shown(there, query.points)
        return StudyPoints(
            there=len(there),
            chromosome=tuple(LABELS[code] for code in self.code[rows].tolist()),
            position=tuple(self.position[rows].tolist()),
            minus_log10_p=tuple(_short(self.y[rows])),
            snp=tuple(self.name(int(row)) for row in rows),
        )

    def _shown(self, there: Rows, most: int) -> Rows:
        if len(there) <= most:
            return there
        y = self.y[there]
        high = np.flatnonzero(y >= KEPT_ABOVE)
        high = high[np.argsort(-y[high], kind="stable")][: most // 2]
        rest = np.setdiff1d(np.arange(len(there)), high, assume_unique=True)
        first = _one_of_each_cell(rest / len(there), np.minimum(y[rest], KEPT_ABOVE) / KEPT_ABOVE, most - len(high))
        shown: Rows = there[np.sort(np.concatenate([high, rest[first]]))]
        return shown

    def quantiles(self, most: int) -> StudyQuantiles:
        """Expected and observed -log10 p, largest first: the first half one by one, then evenly along the axis."""
        observed = self.y[self.order]
        number = len(observed)
        expected = -np.log10((np.arange(1, number + 1) - 0.5) / max(number, 1))
        if number > most:
            least = expected[most // 2]
            cells = np.floor(expected / least * (most - most // 2 - 2))
            _, first = np.unique(-cells[most // 2 :], return_index=True)
            keep = np.unique(np.concatenate([np.arange(most // 2), most // 2 + first, [number - 1]]))
            expected, observed = expected[keep], observed[keep]
        return StudyQuantiles(expected=tuple(_short(expected)), observed=tuple(_short(observed)))

    def hits(self, query: HitsQuery) -> HitList:
        """SNPs by their rank, 1 with the smallest p, from that behind `query.after` on."""
        contains = query.contains.strip()
        wanted = self.order if not contains else self._found(contains)
        part = wanted[query.after : query.after + query.limit]
        return HitList(
            there=len(wanted), hits=tuple(self._hit(int(row), query.after + at + 1) for at, row in enumerate(part))
        )

    def _hit(self, row: int, rank: int) -> HitView:
        first, second = self._word("first", row), self._word("second", row)
        turned = bool(self._arrays["minor"][row] == 1)
        effect, low, high = self._effect(row)
        return HitView(
            rank=rank, snp=self.name(row), chromosome=LABELS[self.code[row]], position=int(self.position[row]),
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

    def _within(self, region: PointsQuery) -> Rows:
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


def _short(values: Floats) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in values.tolist()]


def _one_of_each_cell(x: Floats, y: Floats, most: int) -> Rows:
    """The first of the points in each cell of a grid that is as fine as `most` points allow; x, y from 0 to 1."""
    wide = max(1, most // 2)
    while True:
        cells = np.floor(x * wide) * (_TALL + 1) + np.floor(y * _TALL)
        _, first = np.unique(cells, return_index=True)
        if len(first) <= most or wide == 1:
            return first[:most]
        wide = max(1, min(wide - 1, wide * most // len(first)))
