"""Numbers that runs are compared by: Matthews correlation, and what it took to reach a target. Loads numpy alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import invalid


def confusion(truth: NDArray[np.integer], predicted: NDArray[np.integer], classes: int) -> NDArray[np.int64]:
    """(classes, classes) counts, by true class (row) and predicted class (column). Counts of sites add up."""
    flat = truth.astype(np.int64) * classes + predicted
    return np.bincount(flat, minlength=classes * classes).reshape(classes, classes).astype(np.int64)


def matthews(counts: NDArray[np.integer]) -> float:
    """Matthews correlation of a confusion matrix, for any number of classes (Gorodkin, 2004).

    For two classes it is (TP TN - FP FN) / sqrt((TP+FN)(TP+FP)(TN+FP)(TN+FN)) (spec 001, section 2.10); 0/0 is 0: a
    model that always says the same has accuracy, and no correlation.

    Args:
        counts: (classes, classes), as `confusion` gives them.
    """
    table = counts.astype(object)  # exact integers: products of counts overflow
    total, right = int(table.sum()), int(np.trace(table))
    truth, said = [int(n) for n in table.sum(axis=1)], [int(n) for n in table.sum(axis=0)]
    covariance = right * total - sum(t * s for t, s in zip(truth, said, strict=True))
    spread = (total * total - sum(s * s for s in said)) * (total * total - sum(t * t for t in truth))
    return float(covariance / spread**0.5) if spread else 0.0


@dataclass(frozen=True, slots=True)
class Reached:
    """The first round that met a target, and what had been sent by then.

    Attributes:
        round: from 1.
        bytes: up and down together, through that round.
    """

    round: int
    bytes: int


def reached(
    values: Sequence[float | None],
    target: float,
    *,
    larger_is_better: bool = True,
    round_bytes: Sequence[int] | int = 0,
) -> Reached | None:
    """When a metric first met a target; None: not reached.

    Args:
        values: by round, from the first; None where it was not measured.
        round_bytes: sent in each round, up and down; one number if all are alike.

    Raises:
        HanseError: INVALID_INPUT where the bytes are not of as many rounds.
    """
    sizes = [round_bytes] * len(values) if isinstance(round_bytes, int) else list(round_bytes)
    if len(sizes) != len(values):
        raise invalid("round_bytes", len(sizes), f"one number, or {len(values)}, one for each round")
    sent = 0
    for number, (value, size) in enumerate(zip(values, sizes, strict=True), start=1):
        sent += size
        if value is not None and (value >= target if larger_is_better else value <= target):
            return Reached(number, sent)
    return None
