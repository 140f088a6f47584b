"""What a site counts where each count is to have noise.

An example is in one cell: its true class by the bin of its score, from which the confusion matrix, curves and (each bin
taken at its middle) calibration follow; of regression its value by what is said of it (`pooled.pairs`). Of more than
two classes it is in one cell of the confusion matrix, and in one of each class's histogram. Counts are in steps of
1 / STEPS of an example, of which Laplace noise is a whole number.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.tensors.words import pack_words, unpack_words
from hanse_learning.metrics import confusion
from hanse_learning.pooled.layout import HEAD, Counts
from hanse_learning.pooled.pairs import cells_of
from hanse_learning.pooled.scores import Floats, Words, odds_of, place
from hanse_privacy.noise.counts import Change, CountNoise, laplace_noise
from hanse_privacy.noise.source import NoiseSource

STEPS = 1 << 10

Numbers = NDArray[np.int64]


def noise_of(scale: float) -> CountNoise:
    """What each site adds to each count.

    Args:
        scale: in examples.
    """
    return laplace_noise(Change(float(STEPS), float(STEPS)), scale)


def with_noise(counts: Counts, scale: float, counted: str, source: NoiseSource | None = None) -> str:
    """A site's words with noise in all but the number of sites.

    Args:
        counted: as a worker gives them (`pack_words`).
        source: for tests; else of fresh randomness.
    """
    vector = unpack_words(counted, counts.words, field="counted").view(np.int64)
    blocks = noise_of(scale).add(vector, source).reshape(counts.groups, counts.block)
    blocks[:, :HEAD] = [1, 0]
    return pack_words(blocks.ravel().view(np.uint64))


def nothing(counts: Counts) -> Words:
    """The words of a site that has no example."""
    blocks = np.zeros((counts.groups, counts.block), np.uint64)
    blocks[:, 0] = 1
    return blocks.ravel()


def chosen_rows(whose: Numbers, rows: int) -> Numbers:
    """Which examples count, where a unit has so many at most: its first ones."""
    order = np.argsort(whose, kind="stable")
    _, first, many = np.unique(whose[order], return_index=True, return_counts=True)
    return np.asarray(np.sort(order[np.arange(len(whose)) - np.repeat(first, many) < rows]))


def block_of(counts: Counts, outputs: Floats, targets: NDArray[np.generic]) -> Words:
    """The cells of the examples of one group. It never fails on them, for that would tell of them without noise.

    It leaves none out for their number either: another would come in where one leaves, and move a second count.

    Args:
        outputs: logits (n, classes), finite or not.
        targets: labels (n,).
    """
    made = np.zeros(counts.block, np.int64)
    made[0] = 1
    if not len(targets):
        return made.view(np.uint64)
    if (part := counts.parts.get("pairs")) is not None:
        said = np.nan_to_num(outputs.reshape(len(targets), -1)[:, 0])
        true = np.nan_to_num(targets.astype(np.float64).ravel())
        made[part] = cells_of(true, said, counts.bounds, counts.bins) * STEPS
        return made.view(np.uint64)
    logits, labels = np.nan_to_num(outputs), targets.astype(np.int64)
    logits = np.clip(logits, -1e6, 1e6)
    said = logits.argmax(axis=1)
    if (part := counts.parts.get("confusion")) is not None:
        made[part] = confusion(labels, said, counts.classes).ravel() * STEPS
    if (part := counts.parts.get("scores")) is not None:
        at = (place(odds_of(logits)) * counts.bins).astype(np.int64)  # (n, classes)
        if counts.classes == 2:  # the upper half are those that are said to be so, whatever even odds round to
            half = counts.bins // 2
            at[:, 1] = np.where(said == 1, np.maximum(at[:, 1], half), np.minimum(at[:, 1], half - 1))
        tables = [_histogram(at[:, label], labels == label, counts.bins) for label in curves(counts)]
        made[part] = np.concatenate(tables)
    return made.view(np.uint64)


def curves(counts: Counts) -> tuple[int, ...]:
    """The classes that have a histogram."""
    return (1,) if counts.classes == 2 else tuple(range(counts.classes))


def _histogram(at: Numbers, positive: NDArray[np.bool_], bins: int) -> Numbers:
    """Positive examples by bin, then the others: (2 bins,)."""
    both = [np.bincount(at[kind], minlength=bins) for kind in (positive, ~positive)]
    return np.concatenate(both).astype(np.int64) * STEPS
