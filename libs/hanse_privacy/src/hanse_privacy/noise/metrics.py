"""Metrics and numbers of people with Laplace noise: what leaves beside private updates, as charged queries.

What is hidden is what the job's updates hide (`hanse_privacy.accounting.terms`):

- of a site: each metric is cut to +-bound, and may become any other in there. So K metrics, each over twice its bound,
  change by at most 1 each, and K in all.
- of an example, there or not (`dp_sgd`): a metric is a sum over examples of values from 0 to its bound, over their
  number. One example changes the K sums, each over its bound, and the number by at most 1 each, and K + 1 in all.

Noise of that over epsilon in each is epsilon-private (Dwork, McSherry, Nissim and Smith 2006, proposition 1). Which
numbers there are depends on the job alone: one that was not made is answered as 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.messages.privacy import PrivateMetrics
from hanse_privacy.noise.mechanisms import Laplace, add
from hanse_privacy.noise.source import NoiseSource

Floats = NDArray[np.float64]


def noisy_metrics(metrics: Mapping[str, float], asked: PrivateMetrics, source: NoiseSource) -> dict[str, float]:
    """Metrics that hide the whole of what one site contributes to them.

    Args:
        metrics: as the site measured them; what is not asked for stays here.
        source: of fresh randomness.
    """
    names = sorted(asked.bounds)
    cut = np.array([_cut(metrics.get(name), -asked.bounds[name], asked.bounds[name]) for name in names])
    widths = 2 * np.array([asked.bounds[name] for name in names])
    return dict(zip(names, (widths * _noised(cut / widths, asked.epsilon, source)).tolist(), strict=True))


def noisy_means(
    shares: Mapping[str, float], examples: int, asked: PrivateMetrics, source: NoiseSource
) -> tuple[dict[str, float], int]:
    """(means over examples, their number, at least 1), which hide whether any one example was among them.

    Args:
        shares: means over the examples, of values that were cut to 0..bound each, over the bound: 0 to 1. Means by
            themselves would be rounded, and of a bound next to zero to nothing or all of it.
    """
    names = sorted(asked.bounds)
    bounds = np.array([asked.bounds[name] for name in names])
    sums = examples * np.array([_cut(shares.get(name), 0.0, 1.0) for name in names])
    told = _noised(np.append(sums, examples), asked.epsilon, source)
    number = max(1.0, float(told[-1]))
    return dict(zip(names, (bounds * told[:-1] / number).tolist(), strict=True)), round(number)


def _noised(values: Floats, epsilon: float, source: NoiseSource) -> Floats:
    """Values (k,) of which each changes by at most 1, with noise for all of them together."""
    scale = values.size / epsilon
    wider = Laplace(scale).widened(values.size)
    return add(values, Laplace((values.size + wider * (1 + wider)) / epsilon), source)


def _cut(value: float | None, least: float, most: float) -> float:
    return 0.0 if value is None or math.isnan(value) else min(most, max(least, value))
