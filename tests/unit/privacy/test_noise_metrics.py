"""Metrics that leave with noise: how much, what they are cut to, and that only the job says which there are."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hanse_fabric.messages.privacy import PrivateMetrics
from hanse_privacy.noise.metrics import noisy_means, noisy_metrics
from hanse_privacy.noise.source import NoiseSource

ASKED = PrivateMetrics(epsilon=0.5, bounds={"loss": 4.0, "accuracy": 1.0})
EXACT = PrivateMetrics(epsilon=1e6, bounds={"loss": 4.0, "accuracy": 1.0})
MANY = 4000


def drawn(seed: int) -> NoiseSource:
    return NoiseSource(bytes([seed]) * 32)


def test_noise_of_a_sites_metrics_is_their_number_of_ranges_over_epsilon() -> None:
    source = drawn(1)
    told = np.array([list(noisy_metrics({"loss": 1.0, "accuracy": 0.5}, ASKED, source).values()) for _ in range(MANY)])
    accuracy, loss = told.T
    # Two metrics, each 2 bounds wide: scales of 2 * 2 bound / 0.5, whose mean absolute value is the scale.
    assert np.mean(np.abs(loss - 1.0)) == pytest.approx(32.0, rel=0.06)
    assert np.mean(np.abs(accuracy - 0.5)) == pytest.approx(8.0, rel=0.06)


def test_noise_of_means_over_examples_is_the_number_of_queries_over_epsilon() -> None:
    source, shares = drawn(2), {"loss": 0.25, "accuracy": 0.5}
    told = [noisy_means(shares, 100_000, ASKED, source) for _ in range(MANY)]
    sums = np.array([metrics["loss"] * count for metrics, count in told])
    counts = np.array([count for _, count in told])
    # Two sums and a number: a scale of 3 / 0.5 in units of a bound.
    assert np.mean(np.abs(sums / 4.0 - 25_000)) == pytest.approx(6.0, rel=0.1)
    assert np.mean(np.abs(counts - 100_000)) == pytest.approx(6.0, rel=0.1)


def test_one_example_more_moves_no_query_by_more_than_one() -> None:
    """By the largest epsilon there is, what noise is added to is seen."""
    before, number = noisy_means({"loss": 1.0, "accuracy": 0.0}, 10, EXACT, drawn(3))
    after, more = noisy_means({"loss": 1.0, "accuracy": 1.0 / 11}, 11, EXACT, drawn(4))
    assert (number, more) == (10, 11)
    moved = [(after[name] * more - before[name] * number) / bound for name, bound in EXACT.bounds.items()]
    assert moved == pytest.approx([1.0, 1.0], abs=1e-3)


@pytest.mark.parametrize("value", [math.inf, 1e300, 9.0])
def test_values_are_cut_to_their_bound_whatever_they_are(value: float) -> None:
    assert noisy_metrics({"loss": value}, EXACT, drawn(5))["loss"] == pytest.approx(4.0, abs=1e-3)
    assert noisy_metrics({"loss": -value}, EXACT, drawn(5))["loss"] == pytest.approx(-4.0, abs=1e-3)


@pytest.mark.parametrize("metrics", [{}, {"loss": math.nan, "accuracy": math.nan, "r2": 0.7}])
def test_the_job_alone_says_which_numbers_there_are(metrics: dict[str, float]) -> None:
    told = noisy_metrics(metrics, EXACT, drawn(6))
    assert told == {"accuracy": pytest.approx(0.0, abs=1e-3), "loss": pytest.approx(0.0, abs=1e-3)}
    means, number = noisy_means(metrics, 0, EXACT, drawn(6))
    assert (means.keys(), number) == (told.keys(), 1)
