"""Reductions of buffers (batch-norm statistics, counters), each by its own rule; no strategy or optimizer sees them."""

from __future__ import annotations

import numpy as np

from hanse_learning.server.reduction import Array, Rows, working_dtype
from hanse_learning.server.weighted_mean import WeightedMean


def average(values: Rows, weights: Array, out: Array) -> None:
    """out (n,) floats = weighted mean of `values` K x (n,), made in the working dtype."""
    if out.dtype == working_dtype(out.dtype):
        WeightedMean().combine(values, weights, out)
        return
    wide = np.empty(len(out), working_dtype(out.dtype))
    WeightedMean().combine(values, weights, wide)
    out[...] = wide


def pool_variance(variances: Rows, means: Rows, weights: Array, out: Array) -> None:
    """out (n,) = sum_k w_k (var_k + (mean_k - mean)^2), mean = sum_k w_k mean_k: the variance of all examples
    together. The deviations are squared, not the means: nothing cancels. Sums are made in float64."""
    mean = np.zeros(len(out))
    for row, weight in zip(means, weights, strict=True):
        mean += row.astype(np.float64) * weight
    total = np.zeros(len(out))
    for variance, row, weight in zip(variances, means, weights, strict=True):
        deviation = row.astype(np.float64) - mean
        total += (variance.astype(np.float64) + deviation * deviation) * weight
    out[...] = total


def keep_newest(values: Rows, out: Array) -> None:
    """out (n,) = the largest of `values` K x (n,), in their own dtype: integers stay exact."""
    out[...] = values[0]
    for row in values[1:]:
        np.maximum(out, row, out=out)
