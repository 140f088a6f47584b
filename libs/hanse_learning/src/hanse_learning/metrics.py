"""Numbers that runs are compared by: Matthews correlation, and what it took to reach a target. Loads numpy alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hanse_schemas.targets import Reached, reached

__all__ = ["Reached", "confusion", "matthews", "reached"]


def confusion(truth: NDArray[np.integer], predicted: NDArray[np.integer], classes: int) -> NDArray[np.int64]:
    """(classes, classes) counts, by true class (row) and predicted class (column). Counts of sites add up."""
    flat = truth.astype(np.int64) * classes + predicted
    return np.bincount(flat, minlength=classes * classes).reshape(classes, classes).astype(np.int64)


def matthews(counts: NDArray[np.integer]) -> float:
    """Matthews correlation of a confusion matrix, for any number of classes (Gorodkin, 2004).

    For two classes it is (TP TN - FP FN) / sqrt((TP+FN)(TP+FP)(TN+FP)(TN+FN)); 0/0 is 0: a model that always says the
    same has accuracy, and no correlation.

    Args:
        counts: (classes, classes), as `confusion` gives them.
    """
    table = counts.astype(object)  # exact integers: products of counts overflow
    total, right = int(table.sum()), int(np.trace(table))
    truth, said = [int(n) for n in table.sum(axis=1)], [int(n) for n in table.sum(axis=0)]
    covariance = right * total - sum(t * s for t, s in zip(truth, said, strict=True))
    spread = (total * total - sum(s * s for s in said)) * (total * total - sum(t * t for t in truth))
    return float(covariance / spread**0.5) if spread else 0.0
