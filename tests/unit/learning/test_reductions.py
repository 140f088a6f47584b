"""Reductions against brute force, and that no cut of the columns changes a bit of them."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse_learning.server import reduction as reduction_module
from hanse_learning.server.buffers import average, keep_newest, pool_variance
from hanse_learning.server.bulyan import Bulyan
from hanse_learning.server.order_statistics import Median, TrimmedMean
from hanse_learning.server.reduction import Reduction, normalize
from hanse_learning.server.strategy import build_strategy
from hanse_learning.server.weighted_mean import WeightedMean

REDUCTIONS: dict[str, Reduction] = {
    "mean": WeightedMean(),
    "median": Median(),
    "trimmed": TrimmedMean(0.2),
    "bulyan": Bulyan(1),
}


def _updates(count, columns, dtype=np.float32, seed=1):
    return np.random.default_rng(seed).standard_normal((count, columns)).astype(dtype)


@pytest.mark.parametrize("count", [1, 2, 3, 16, 100])
def test_the_weighted_mean_keeps_its_error_bound(count):
    updates = _updates(count, 3000)
    weights = normalize([1.0 + k for k in range(count)])
    out = np.empty(3000, np.float32)
    WeightedMean().combine(updates, weights, out)
    exact = weights @ updates.astype(np.float64)
    bound = (count + 2) * 2.0**-24 * (weights @ np.abs(updates.astype(np.float64)))
    assert np.all(np.abs(out - exact) <= bound)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 64, 100])
def test_the_median_is_numpys(count):
    updates = _updates(count, 2000, np.float64)
    out = np.empty(2000)
    Median().combine(updates, normalize([1.0] * count), out)
    np.testing.assert_allclose(out, np.median(updates, axis=0), rtol=1e-14)


@pytest.mark.parametrize(("count", "fraction", "trim"), [(10, 0.1, 1), (10, 0.3, 3), (100, 0.29, 29), (5, 0.1, 0)])
def test_the_trimmed_mean_leaves_out_the_extremes(count, fraction, trim):
    updates = _updates(count, 1500, np.float64)
    out = np.empty(1500)
    TrimmedMean(fraction).combine(updates, normalize([1.0] * count), out)
    kept = np.sort(updates, axis=0)[trim : count - trim]
    np.testing.assert_allclose(out, kept.mean(axis=0), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", REDUCTIONS)
@settings(max_examples=40, deadline=None)
@given(
    cuts=st.lists(st.integers(1, 699), max_size=6),
    count=st.integers(1, 9),
    dtype=st.sampled_from([np.float16, np.float32, np.float64]),
    seed=st.integers(0, 1000),
)
def test_no_cut_of_the_columns_changes_a_bit(name, cuts, count, dtype, seed):
    updates = _updates(count, 700, dtype, seed)
    updates[:, seed % 700] = [0.0 if k % 2 else -0.0 for k in range(count)]
    weights = normalize([1.0 + k for k in range(count)])
    wide = np.float64 if dtype == np.float64 else np.float32
    whole, cut = np.empty(700, wide), np.empty(700, wide)
    REDUCTIONS[name].combine(updates, weights, whole)
    edges = [0, *sorted(set(cuts)), 700]
    for start, stop in itertools.pairwise(edges):
        REDUCTIONS[name].combine([row[start:stop] for row in updates], weights, cut[start:stop])
    assert whole.tobytes() == cut.tobytes()


@pytest.mark.parametrize("optimizer", ["none", "sgd", "adam", "yogi", "adagrad"])
def test_server_optimizers_give_the_same_bits_for_every_size_of_tile(optimizer, monkeypatch):
    strategy = build_strategy({"optimizer": {"name": optimizer}})
    updates, weights = _updates(3, 5000), normalize([1.0, 2.0, 3.0])
    results = []
    for tile in (5000, 1024, 777):
        monkeypatch.setattr(reduction_module, "TILE", tile)
        model = _updates(1, 5000, seed=2)[0]
        state = {name: np.full(5000, value, np.float32) for name, value in strategy.optimizer.state.items()}
        strategy.apply(model, updates, weights, state, 1)
        results.append(model.tobytes() + b"".join(array.tobytes() for array in state.values()))
    assert len(set(results)) == 1


def test_the_mean_of_two_very_large_values_is_finite():
    out = np.empty(1, np.float32)
    Median().combine(np.full((2, 1), 3e38, np.float32), normalize([1, 1]), out)
    assert out[0] == np.float32(3e38)


def test_pooled_variance_is_the_variance_of_all_examples_together():
    rng = np.random.default_rng(3)
    groups = [rng.standard_normal((n, 4)) * s + m for n, s, m in ((10, 1, 5), (30, 3, -2), (7, 0.1, 100))]
    weights = normalize([float(len(g)) for g in groups])
    means, variances = [g.mean(0) for g in groups], [g.var(0) for g in groups]
    out = np.empty(4)
    pool_variance(variances, means, weights, out)
    np.testing.assert_allclose(out, np.concatenate(groups).var(0), rtol=1e-12)


def test_counters_keep_the_newest_value_exactly():
    values = np.array([[2**53 + 1, 5], [2**53, 7]], np.int64)
    out = np.empty(2, np.int64)
    keep_newest(values, out)
    assert out.tolist() == [2**53 + 1, 7]


def test_half_precision_buffers_are_averaged_in_single_precision():
    values = np.full((64, 3), 2048, np.float16) + np.float16(2)
    out = np.empty(3, np.float16)
    average(values, normalize([1.0] * 64), out)
    assert out.tolist() == [2050, 2050, 2050]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_equal_buffers_stay_what_they_are_to_the_bit(dtype: type) -> None:
    """Frozen statistics travel every round and must not drift."""
    values = np.random.default_rng(3).lognormal(size=257, sigma=3).astype(dtype)
    weights = normalize([3.0, 1.0, 7.0, 0.1, 2.3])
    out = np.empty_like(values)
    average([values] * 5, weights, out)
    assert out.tobytes() == values.tobytes()
    pool_variance([values] * 5, [-values] * 5, weights, out)
    assert out.tobytes() == values.tobytes()
