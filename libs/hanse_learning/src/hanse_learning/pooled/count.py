"""What a site counts of its test examples: one vector of 64-bit words, that adds up over sites."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError, invalid, unfit
from hanse_learning.metrics import confusion
from hanse_learning.pooled.layout import CALIBRATION_BINS, MOMENT_LIMBS, MOST_EXAMPLES, Counts
from hanse_learning.pooled.noisy import block_of
from hanse_learning.pooled.pairs import cells_of, ranked
from hanse_learning.pooled.scores import Floats, Words, histogram, odds_of
from hanse_privacy.ring import limbs
from hanse_schemas.metrics import COARSE

FRACTION_BITS = 32
"""Of probabilities and their squared errors."""
VALUE_BITS = 60
MOMENT_BITS = 2 * VALUE_BITS
"""Of sums of errors: fixed point with so many bits behind the point, 160 before."""


def counts_of(
    counts: Counts, outputs: Floats, targets: NDArray[np.generic], groups: NDArray[np.int64] | None = None
) -> Words:
    """The vector (words,) of one site.

    Args:
        outputs: logits (n, classes), or of regression values (n, 1).
        targets: labels (n,), or values (n, 1).
        groups: (n,) of the examples, where it is counted by these.

    Raises:
        HanseError: SCHEMA_MISMATCH for so many examples that words could overflow; TRAINING_FAILED for outputs that are
            not finite.
    """
    if counts.scale is not None:
        return _each_group(counts, outputs, targets, groups, block_of)
    if len(targets) > MOST_EXAMPLES:
        raise unfit(f"test examples: at most {MOST_EXAMPLES} can be counted", len(targets))
    if not np.isfinite(outputs).all():
        raise HanseError(ErrorCode.TRAINING_FAILED, "evaluation: the model's outputs are not finite")
    return _each_group(counts, outputs, targets, groups, _block)


def _each_group(
    counts: Counts, outputs: Floats, targets: NDArray[np.generic], groups: NDArray[np.int64] | None,
    block: Callable[[Counts, Floats, NDArray[np.generic]], Words],
) -> Words:  # fmt: skip
    if counts.subgroups is None:
        return block(counts, outputs, targets)
    if groups is None or len(groups) != len(targets):
        raise invalid("groups", None if groups is None else len(groups), f"one for each of {len(targets)} examples")
    blocks = [block(counts, outputs[groups == at], targets[groups == at]) for at in range(counts.groups)]
    return np.concatenate(blocks)


def _block(counts: Counts, outputs: Floats, targets: NDArray[np.generic]) -> Words:
    """Of the examples of one group."""
    vector = np.zeros(counts.block, np.uint64)
    vector[0], vector[1] = 1, len(targets)
    for family, part in counts.parts.items() if len(targets) else ():
        vector[part] = _OF[family](counts, outputs, targets)
    return vector


def probabilities_of(logits: Floats) -> Floats:
    """(n, classes)."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _confusion(counts: Counts, logits: Floats, labels: NDArray[np.generic]) -> Words:
    return confusion(labels.astype(np.int64), logits.argmax(axis=1), counts.classes).astype(np.uint64).ravel()


def _scores(counts: Counts, logits: Floats, labels: NDArray[np.generic]) -> Words:
    odds, fine = odds_of(logits), counts.bins > COARSE
    chosen = (1,) if counts.classes == 2 else range(counts.classes)
    return np.stack([histogram(odds[:, at], labels == at, counts.bins, places=fine) for at in chosen]).ravel()


def _probabilities(counts: Counts, logits: Floats, labels: NDArray[np.generic]) -> Words:
    """By bin of the probability: examples, sum of probabilities, how many are so; then the sum of squared errors.

    The probability is that of class 1 of two, else of the class that is predicted.
    """
    chances = probabilities_of(logits)
    if counts.classes == 2:
        chance, happened = chances[:, 1], labels == 1
        squared = np.square(chance - happened)
    else:
        said = logits.argmax(axis=1)
        chance, happened = chances[np.arange(len(said)), said], labels == said
        squared = np.square(chances - np.eye(counts.classes)[labels.astype(np.int64)]).sum(axis=1)
    return calibration_words(chance, happened, squared, np.ones(len(chance), np.int64))


def calibration_words(
    chance: Floats, happened: NDArray[np.bool_], squared: Floats, many: NDArray[np.int64]
) -> Words:  # fmt: skip
    """The words of calibration, of so many examples of each probability.

    Args:
        chance, happened, squared, many: (n,) probabilities, whether it is so, squared errors, and numbers of examples.
    """
    # Bins are open below, as where calibration errors are defined (Guo et al., 2017, section 2).
    at = np.clip(np.ceil(chance * CALIBRATION_BINS).astype(np.int64) - 1, 0, CALIBRATION_BINS - 1)
    table = np.zeros((3, CALIBRATION_BINS), np.int64)
    np.add.at(table[0], at, many)
    np.add.at(table[1], at, _fixed(chance) * many)
    np.add.at(table[2], at, happened * many)
    return np.append(table.ravel(), (_fixed(squared) * many).sum()).astype(np.uint64)


def _fixed(values: Floats) -> NDArray[np.int64]:
    return np.rint(values * 2.0**FRACTION_BITS).astype(np.int64)


def _moments(_counts: Counts, outputs: Floats, targets: NDArray[np.generic]) -> Words:
    values = targets.astype(np.float64).reshape(outputs.shape)
    with _sums_that_fit():
        errors, true = _whole(outputs - values), _whole(values)
        rows = limbs.split([
            sum(map(abs, errors)) << VALUE_BITS, sum(each * each for each in errors),
            sum(true) << VALUE_BITS, sum(each * each for each in true),
        ], MOMENT_LIMBS)  # fmt: skip
    return np.array(rows, np.int64).ravel().view(np.uint64)


def _agreement(_counts: Counts, outputs: Floats, targets: NDArray[np.generic]) -> Words:
    values = targets.astype(np.float64).reshape(outputs.shape)
    with _sums_that_fit():
        true, said = _whole(values), _whole(outputs)
        rows = limbs.split([
            sum(true) << VALUE_BITS, sum(each * each for each in true),
            sum(said) << VALUE_BITS, sum(each * each for each in said),
            sum(one * other for one, other in zip(true, said, strict=True)),
        ], MOMENT_LIMBS)  # fmt: skip
    return np.array(rows, np.int64).ravel().view(np.uint64)


@contextmanager
def _sums_that_fit() -> Iterator[None]:
    try:
        yield
    except (OverflowError, HanseError):
        raise unfit("values and errors: sums of squares below 2^159 were expected", "larger ones") from None


def _pairs(counts: Counts, outputs: Floats, targets: NDArray[np.generic]) -> Words:
    if outputs.reshape(len(targets), -1).shape[1] != 1:
        raise unfit("concordance: one value of each example was expected", outputs.shape)
    true, said = targets.astype(np.float64).ravel(), outputs.ravel()
    words = cells_of(true, said, counts.bounds, counts.bins)
    if counts.ranks:
        words = np.concatenate([words, ranked(true, said, counts.bounds, counts.bins)])
    return words.view(np.uint64)


def _whole(values: Floats) -> list[int]:
    """In units of 2^-60, so that sums and sums of squares are exact: those of the same values do not vary."""
    return [int(value) for value in (values * 2.0**VALUE_BITS).ravel().tolist()]


_OF = {
    "confusion": _confusion, "scores": _scores, "probabilities": _probabilities, "moments": _moments,
    "agreement": _agreement, "pairs": _pairs,
}  # fmt: skip
