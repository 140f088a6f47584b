"""Histograms of scores, and what they say of how well scores rank.

A score is a log-odds z, so that probabilities near 0 and 1 stay apart; it has the place

    u = (1 + asinh(z / SMALLEST) / asinh(LARGEST / SMALLEST)) / 2                                       (1)

in 0..1, nearly logarithmic in |z|. A word of a bin holds the number of its examples above 40 bits with the sum of where
in the bin they lie, in 65536ths. Two examples of a bin, one of each kind, are ranked by that exactly; of more it tells
the mean places, and so how likely one kind is above the other: with places that are spread evenly, of variance 1/12,
and means m of p and n of q examples, the difference of two of them is near normal around m - n with variance

    (2 - 1/p - 1/q) / 12.                                                                               (2)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Words = NDArray[np.uint64]

SMALLEST, LARGEST = 0.02, 256.0
_PLACES = 1 << 16
COUNT_ABOVE = np.uint64(40)
_SUM = np.uint64((1 << 40) - 1)


def place(odds: Floats) -> Floats:
    """Where log-odds lie: (n,) of (1), in [0, 1)."""
    u = (1.0 + np.arcsinh(odds / SMALLEST) / math.asinh(LARGEST / SMALLEST)) / 2.0
    return np.clip(np.nan_to_num(u, nan=0.0), 0.0, np.nextafter(1.0, 0.0))


def middles(bins: int) -> Floats:
    """The log-odds that lie in the middle of each bin: (bins,)."""
    u = (np.arange(bins) + 0.5) / bins
    return np.asarray(SMALLEST * np.sinh((2.0 * u - 1.0) * math.asinh(LARGEST / SMALLEST)))


def odds_of(logits: Floats) -> Floats:
    """Log-odds (n, classes) of each class against the mean of the others, from logits: nothing is lost where p rounds
    to 1, and a model that knows nothing has scores near 0, where they are told apart best."""
    columns = range(logits.shape[1])
    return np.stack([logits[:, at] - _log_mean(np.delete(logits, at, axis=1)) for at in columns], axis=1)


def _log_mean(values: Floats) -> Floats:
    largest = values.max(axis=1)
    return np.asarray(largest + np.log(np.exp(values - largest[:, None]).mean(axis=1)))


def histogram(odds: Floats, positive: NDArray[np.bool_], bins: int, *, places: bool = True) -> Words:
    """Words (2, bins): of positive examples, then of the others.

    Args:
        places: whether words tell where in a bin the examples lie; without them a bin's examples rank alike.
    """
    scaled = place(odds) * bins
    at = scaled.astype(np.int64)
    inside = ((scaled - at) * _PLACES).astype(np.int64) if places else np.zeros_like(at)
    rows = []
    for kind in (positive, ~positive):
        count = np.bincount(at[kind], minlength=bins).astype(np.uint64)
        total = np.bincount(at[kind], weights=inside[kind], minlength=bins).astype(np.uint64)  # whole, below 2^53
        rows.append((count << COUNT_ABOVE) + total)
    return np.stack(rows)


@dataclass(frozen=True, slots=True)
class Ranking:
    """What a sum of histograms says.

    Attributes:
        auroc, average_precision: of all examples; None where one kind is missing.
        within: the pooled area is nowhere farther than this from `auroc`, whatever the order in the bins is.
        roc: (k, 2) false and true positive rates; precision: (k, 2) recall and precision.
    """

    positives: int
    negatives: int
    auroc: float | None = None
    average_precision: float | None = None
    within: float = 0.0
    roc: tuple[tuple[float, float], ...] = ()
    precision: tuple[tuple[float, float], ...] = ()


def ranking(words: Words) -> Ranking:
    """Of a sum (2, bins) of `histogram`s."""
    p, q = ((words[kind] >> COUNT_ABOVE).astype(np.int64) for kind in (0, 1))
    positives, negatives = int(p.sum()), int(q.sum())
    if not positives or not negatives:
        return Ranking(positives, negatives)
    above, tied = _inside(words, p, q)
    pairs = p.astype(np.float64) * q
    below = (np.cumsum(q) - q).astype(np.float64)
    area = float((p * below + pairs * (1.0 - above)).sum()) / (positives * negatives)
    open_ = pairs * np.maximum(above, 1.0 - above)
    open_[(p == 1) & (q == 1) & ~tied] = 0.0
    hits, misses = positives - np.cumsum(p), negatives - np.cumsum(q)  # in higher bins
    precision = _average_precision(p, q, hits, misses, above, tied) / positives
    return Ranking(
        positives, negatives, area, precision, float(open_.sum()) / (positives * negatives),
        *_curves(p, q, positives, negatives),
    )  # fmt: skip


def _inside(words: Words, p: Whole, q: Whole) -> tuple[Floats, NDArray[np.bool_]]:
    """Of each bin: how likely a negative example is above a positive one; whether both have one place."""
    above = np.full(len(p), 0.5)
    tied = np.zeros(len(p), np.bool_)
    sums = (words & _SUM).astype(np.int64)
    for at in np.flatnonzero((p > 0) & (q > 0)).tolist():
        ours, theirs = int(sums[0, at]) * int(q[at]), int(sums[1, at]) * int(p[at])
        tied[at] = ours == theirs
        if not tied[at]:
            gap = (theirs - ours) / (int(p[at]) * int(q[at]) * _PLACES)
            spread = math.sqrt((2 - 1 / int(p[at]) - 1 / int(q[at])) / 12)
            above[at] = (1 + math.erf(gap / spread / math.sqrt(2))) / 2 if spread else float(gap > 0)
    return above, tied


def _average_precision(
    p: Whole, q: Whole, hits: Whole, misses: Whole, above: Floats, tied: NDArray[np.bool_]
) -> float:  # fmt: skip
    """Sum over positive examples of the precision at their score. In a bin the j-th of p has met about
    q (j / (p + 1) + above - 1/2) of its negatives; those of one score count together."""
    total = 0.0
    for at in np.flatnonzero(p).tolist():
        many, others = int(p[at]), int(q[at])
        if tied[at] or not others:
            step = np.arange(1, many + 1) if not others else np.full(many, many)
            met: Floats | int = others
        else:
            step = np.arange(1, many + 1)
            met = others * np.clip(step / (many + 1) + above[at] - 0.5, 0.0, 1.0)
        true = hits[at] + step
        total += float((true / (true + misses[at] + met)).sum())
    return total


_POINTS = 64


def _curves(
    p: Whole, q: Whole, positives: int, negatives: int
) -> tuple[tuple[tuple[float, float], ...], tuple[tuple[float, float], ...]]:
    """ROC and precision by recall, at so few bins as a picture needs."""
    used = np.flatnonzero(p + q)[::-1]
    true, false = np.cumsum(p[used]), np.cumsum(q[used])
    # By the length of the way along the curve, so that steep parts have their points.
    way = true / positives + false / negatives
    chosen = np.unique(np.searchsorted(way, np.linspace(0.0, 2.0, _POINTS)).clip(0, len(used) - 1))
    roc = [(0.0, 0.0)] + [(_short(false[at] / negatives), _short(true[at] / positives)) for at in chosen]
    precise = [(_short(true[at] / positives), _short(true[at] / (true[at] + false[at]))) for at in chosen]
    return tuple(roc), tuple(precise)


def _short(value: float) -> float:
    return round(float(value), 6)
