"""Mugunthan, 2022, Table 5.2: sites with an epsilon each do better than all at the smallest one, and than alone.

Logistic regression on raw digits (0 to 16), Laplace noise of scale 2 / (n k_min epsilon) on each site's weights, each
site's own noise subtracted from the mean that it gets back. Two sites have 150 examples and epsilon 1, the third 250
and epsilon 0.1. The orderings of the table are reproduced as means over seeds; its accuracies are not.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from hanse_privacy.noise.mechanisms import Laplace, add
from hanse_privacy.noise.source import NoiseSource

KEYS = (1, 2, 3)
"""Of the noise. One draw of it moves the mean over all seeds by as much as two columns of the table differ."""
SEEDS, ROUNDS, STEPS, RATE, TESTED = 24, 10, 20, 0.065, 1000
SIZES = (150, 150, 250)
NOTHING = np.zeros((SEEDS, 65, 10))
Floats = NDArray[np.float32]


@cache
def shares() -> tuple[list[tuple[Floats, Floats]], Floats, NDArray[np.int64]]:
    """For each site x (seeds, 65, k) and y (seeds, 10, k), whose sums over classes are quick so; then the test examples
    and labels."""
    digits = load_digits()
    x, y = np.c_[digits.data, np.ones(len(digits.data))].astype(np.float32), digits.target
    orders = np.stack([np.random.default_rng(seed).permutation(len(x)) for seed in range(SEEDS)])
    ends = np.cumsum(SIZES)
    parts = [orders[:, end - size : end] for end, size in zip(ends, SIZES, strict=True)]
    tested = orders[:, -TESTED:]
    hot = np.eye(10, dtype=np.float32)
    return (
        [tuple(np.ascontiguousarray(each.transpose(0, 2, 1)) for each in (x[part], hot[y[part]])) for part in parts],
        x[tested], y[tested],
    )  # fmt: skip


def trained(weights: Floats, x: Floats, y: Floats) -> Floats:
    """Gradient steps on weights (seeds, 65, 10), all seeds together."""
    for _ in range(STEPS):
        logits = weights.transpose(0, 2, 1) @ x
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        residual = odds / odds.sum(axis=1, keepdims=True) - y
        weights = weights - np.float32(RATE / x.shape[2]) * (x @ residual.transpose(0, 2, 1))
    return weights


def scenario(epsilons: dict[int, float]) -> dict[int, float]:
    """Mean accuracy of each site that takes part, with its epsilon; a site by itself adds no noise."""
    drawn = [drawn_with(key, epsilons) for key in (KEYS if len(epsilons) > 1 else KEYS[:1])]
    return {site: float(np.mean([one[site] for one in drawn])) for site in epsilons}


def drawn_with(key: int, epsilons: dict[int, float]) -> dict[int, float]:
    """The same with one key."""
    data, x, y = shares()
    count, least = len(epsilons), min(SIZES[site] for site in epsilons)
    source = NoiseSource(bytes([key]) * 32)
    mine = {site: NOTHING.astype(np.float32) for site in epsilons}
    for _ in range(ROUNDS):
        noise = {
            site: add(NOTHING, Laplace(2 / (count * least) / epsilon), source).astype(np.float32) if count > 1 else 0.0
            for site, epsilon in epsilons.items()
        }
        mean = sum(trained(mine[site], *data[site]) + noise[site] for site in epsilons) / count
        mine = {site: mean - noise[site] / count for site in epsilons}
    return {site: float(((x @ weights).argmax(axis=2) == y).mean()) for site, weights in mine.items()}


@pytest.fixture(scope="module")
def table() -> dict[int, dict[int, float]]:
    alone = {site: scenario({site: 1.0})[site] for site in range(3)}
    return {
        1: alone,
        2: scenario({0: 1.0, 1: 1.0}),
        3: scenario({0: 0.1, 1: 0.1, 2: 0.1}),
        4: scenario({0: 1.0, 1: 1.0, 2: 0.1}),
    }


@pytest.mark.parametrize("site", [0, 1])
def test_sites_with_the_larger_epsilon_gain_by_each_step_of_the_table(
    table: dict[int, dict[int, float]], site: int
) -> None:
    assert table[1][site] < table[3][site] < table[2][site] < table[4][site]


def test_the_careful_site_gains_only_where_the_others_need_not_be_as_careful(
    table: dict[int, dict[int, float]],
) -> None:
    assert table[3][2] < table[1][2] < table[4][2]
