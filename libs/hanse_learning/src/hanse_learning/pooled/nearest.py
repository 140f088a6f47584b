"""What sums of counts with noise say (`pooled.noisy`), and how surely.

Sums are made counts again by the nearest numbers of 0 or more (least squares; Duchi, Shalev-Shwartz, Singer, Chandra
2008) whose total is the sum's own, rounded to whole examples. So no count is negative, no curve falls, and the shares
of the classes have no bias. It is post-processing, which costs no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from hanse_fabric.tensors.words import unpack_words
from hanse_learning.pooled.count import calibration_words
from hanse_learning.pooled.layout import HEAD, MOST_EXAMPLES, Counts
from hanse_learning.pooled.noisy import STEPS, Numbers, noise_of
from hanse_learning.pooled.scores import COUNT_ABOVE, Floats, Words, middles

REDRAWS = 64
"""Of the noise, by which it is told how surely a metric is known."""
_MOST_SITES = 1 << 20


def exact_layout(counts: Counts) -> Counts:
    """That of the counts of one group without noise."""
    return replace(counts, scale=None, rows=1, subgroups=None)


def nearest(counts: Counts, block: Numbers) -> Numbers:
    """Counts that are some, in steps and in the layout of those with noise: (words,)."""
    made = np.zeros_like(block)
    made[0] = block[0]
    values = np.clip(block, -(1 << 52), 1 << 52) / STEPS
    totals: Numbers | None = None
    if (part := counts.parts.get("confusion")) is not None:
        table = values[part].reshape(counts.classes, counts.classes)
        totals = _totals(table)
        made[part] = np.concatenate([_nearest(row, total) for row, total in zip(table, totals, strict=True)])
    if (part := counts.parts.get("scores")) is not None:
        tables = values[part].reshape(counts.curves, 2, counts.bins)
        if counts.classes == 2:
            positive, others = _totals(tables[0])
            pairs = [(positive, others)]
        else:
            totals = _totals(tables[:, 0]) if totals is None else totals
            pairs = [(total, totals.sum() - total) for total in totals]
        rows = zip(tables.reshape(-1, counts.bins), np.array(pairs).ravel(), strict=True)
        made[part] = np.concatenate([_nearest(row, total) for row, total in rows])
    if (part := counts.parts.get("pairs")) is not None:
        made[part] = _nearest(values[part], int(_totals(values[None, part])[0]))
    made[HEAD:] *= STEPS
    return made


def _totals(rows: Floats) -> Numbers:
    return np.asarray(np.maximum(0, np.rint(rows.sum(axis=1))).astype(np.int64))


def _nearest(values: Floats, total: int) -> Numbers:
    """Whole numbers of that total near the values."""
    if not 0 < total <= MOST_EXAMPLES:
        return np.asarray((values.argmax() == np.arange(len(values))) * np.int64(total))
    falling = np.sort(values)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    found = np.maximum(values - excess[np.flatnonzero(falling > excess)[-1]], 0.0)
    whole = np.floor(found).astype(np.int64)
    short = max(0, int(total) - int(whole.sum()))
    whole[np.argsort(whole - found, kind="stable")[:short]] += 1
    return np.asarray(whole)


def exact(counts: Counts, block: Numbers, sites: int) -> Words:
    """The same in the layout of counts without noise."""
    plain = exact_layout(counts)
    made = np.zeros(plain.block, np.uint64)
    tables = class_sizes(counts, block)
    made[0], made[1] = max(0, sites), min(int(tables.sum()), 1 << 53)
    if made[1] > MOST_EXAMPLES:
        return made
    scores = counts.parts.get("scores")
    histograms = None if scores is None else (block[scores] // STEPS).reshape(counts.curves, 2, counts.bins)
    for family, part in plain.parts.items():
        if family == "scores" and histograms is not None:
            made[part] = histograms.astype(np.uint64).ravel() << COUNT_ABOVE
        elif family == "pairs" or (family == "confusion" and counts.classes > 2):
            made[part] = block[counts.parts[family]] // STEPS
        elif histograms is not None:
            of = _confusion if family == "confusion" else _calibration
            made[part] = of(histograms[0])
    return made


def class_sizes(counts: Counts, block: Numbers) -> Numbers:
    """Examples of each class: (classes,); of regression of all: (1,)."""
    if (part := counts.parts.get("pairs")) is not None:
        return np.asarray(block[part].sum(keepdims=True) // STEPS)
    if (part := counts.parts.get("confusion")) is not None:
        return np.asarray((block[part] // STEPS).reshape(counts.classes, counts.classes).sum(axis=1))
    tables = (block[counts.parts["scores"]] // STEPS).reshape(counts.curves, 2, counts.bins).sum(axis=2)
    return np.asarray(tables[0, ::-1] if counts.classes == 2 else tables[:, 0])


def _confusion(histogram: Numbers) -> Words:
    half = histogram.shape[1] // 2
    rows = [[row[:half].sum(), row[half:].sum()] for row in histogram[::-1]]
    return np.array(rows, np.uint64).ravel()


def _calibration(histogram: Numbers) -> Words:
    chance = 1.0 / (1.0 + np.exp(-middles(histogram.shape[1])))
    chances, happened = np.concatenate([chance, chance]), np.repeat([True, False], len(chance))
    return calibration_words(chances, happened, np.square(chances - happened), histogram.ravel())


def examples_in(counts: Counts, counted: str) -> int:
    """How many examples a site's counts with noise are of, as far as they tell."""
    words = unpack_words(counted, counts.words, field="counted").view(np.int64)
    return int(class_sizes(counts, nearest(counts, words.reshape(counts.groups, counts.block).sum(axis=0))).sum())


def errors_of(
    counts: Counts, scale: float, block: Numbers, measure: Callable[[Numbers], Mapping[str, float]]
) -> dict[str, float]:
    """By how much noise moves each metric: the root mean square over noise that is drawn anew around what was found.

    Args:
        block: as `nearest` gives it; its first word says how many sites' noise there is.
        measure: metrics of such a block.
    """
    found = measure(block)
    draw, sites = np.random.default_rng(0), int(np.clip(block[0], 1, _MOST_SITES))  # this noise hides nothing
    moved: dict[str, list[float]] = {name: [] for name in found}
    for _ in range(REDRAWS):
        # A sum of Laplace variables is a difference of gamma variables.
        up, down = (draw.gamma(sites, noise_of(scale).steps, len(block)) for _ in range(2))
        again = block + np.rint(up - down).astype(np.int64)
        again[:HEAD] = block[:HEAD]
        for name, value in measure(nearest(counts, again)).items():
            if name in moved:
                moved[name].append(value - found[name])
    return {name: math.sqrt(math.fsum(each * each for each in by) / len(by)) for name, by in moved.items() if by}
