"""Reductions of buffers (batch-norm statistics, counters), each by its own rule; no strategy or optimizer sees them."""

from __future__ import annotations

import numpy as np

from hanse_learning.server.reduction import Array, Rows


def average(values: Rows, weights: Array, out: Array) -> None:
    """out (n,) floats = weighted mean of `values` K x (n,), made in float64.

    Made of the differences to the first, so that equal values stay what they are: frozen statistics do not drift.
    """
    first = values[0].astype(np.float64)
    total = np.zeros(len(out))
    for row, weight in zip(values[1:], weights[1:], strict=True):
        total += (row.astype(np.float64) - first) * weight
    out[...] = first + total


def pool_variance(variances: Rows, means: Rows, weights: Array, out: Array) -> None:
    """out (n,) = sum_k w_k (var_k + (mean_k - mean)^2), mean = sum_k w_k mean_k: the variance of all examples
    together. The deviations are squared, not the means: nothing cancels. Sums are made in float64, as `average`'s."""
    mean, total = np.empty(len(out)), np.empty(len(out))
    average(means, weights, mean)
    average(variances, weights, total)
    for row, weight in zip(means, weights, strict=True):
        deviation = row.astype(np.float64) - mean
        total += deviation * deviation * weight
    out[...] = total


def keep_newest(values: Rows, out: Array) -> None:
    """out (n,) = the largest of `values` K x (n,), in their own dtype: integers stay exact."""
    out[...] = values[0]
    for row in values[1:]:
        np.maximum(out, row, out=out)
