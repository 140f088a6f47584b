"""Which p-values of a genome are drawn: all that matter, and of the others only as many as a picture can show."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from hanse_genomics.arrays import Counts, Floats

KEPT_ABOVE = 4.0
"""-log10 p from which every SNP is drawn."""

_CELLS = (1000, 250)
_GAP = 0.01
"""Between chromosomes, as a share of the genome."""


@dataclass(frozen=True, slots=True, eq=False)
class Genome:
    """SNPs on one line.

    Attributes:
        x: place of every SNP, float64 (S,), from 0 to about 1.
        code: chromosome codes in order; centres: the middle of each.
    """

    x: Floats
    code: list[int]
    centres: list[float]


@dataclass(frozen=True, slots=True, eq=False)
class Quantiles:
    """Observed beside expected -log10 p, thinned; float64 (points,), largest first.

    Attributes:
        low, high: 95 % of the observed would lie between if no SNP mattered and all were independent.
    """

    expected: Floats
    observed: Floats
    low: Floats
    high: Floats


def genome(code: NDArray[np.int8], position: Counts) -> Genome:
    """Chromosomes side by side, each as wide as its SNPs' positions reach; SNPs in genome order."""
    present = np.unique(code)
    x = np.empty(len(code))
    spans, at, centres = [], 0.0, []
    for chromosome in present.tolist():
        places = position[code == chromosome]
        spans.append((int(places.min()), max(int(places.max()) - int(places.min()), 1)))
    total = float(sum(span for _, span in spans)) or 1.0
    for chromosome, (first, span) in zip(present.tolist(), spans, strict=True):
        here = code == chromosome
        x[here] = at + (position[here] - first) / total
        centres.append(at + span / total / 2)
        at += span / total + _GAP
    return Genome(x, present.tolist(), centres)


def thinned(x: Floats, y: Floats) -> NDArray[np.int64]:
    """Indices of points to draw: every one above `KEPT_ABOVE`, and one of those that share a cell of the picture.

    Args:
        x, y: float64 (S,), y not negative; NaN is not drawn.
    """
    there = np.flatnonzero(np.isfinite(y))
    if not len(there):
        return there
    low = there[y[there] <= KEPT_ABOVE]
    across = np.floor((x[low] - x[there].min()) / max(float(np.ptp(x[there])), 1e-12) * (_CELLS[0] - 1))
    up = np.floor(y[low] / KEPT_ABOVE * (_CELLS[1] - 1))
    _, first = np.unique(across * _CELLS[1] + up, return_index=True)
    return np.sort(np.concatenate([low[first], there[y[there] > KEPT_ABOVE]]))


def quantiles(y: Floats) -> Quantiles:
    """Points of a quantile-quantile plot.

    Args:
        y: -log10 p, float64 (S,); NaN is left out.
    """
    observed = np.sort(y[np.isfinite(y)])[::-1]
    number = len(observed)
    rank = np.arange(1, number + 1)
    expected = -np.log10((rank - 0.5) / max(number, 1))
    keep = rank <= 1000
    # Further down a picture shows one point for every hundredth of the axis.
    _, first = np.unique(np.floor(expected * 200), return_index=True)
    keep[first] = True
    shown = rank[keep]
    low = -np.log10(betaincinv(shown, number - shown + 1, 0.975))
    high = -np.log10(betaincinv(shown, number - shown + 1, 0.025))
    return Quantiles(expected[keep], observed[keep], low, high)
