"""Krum, Multi-Krum, Bulyan and the geometric median against brute force, and against hostile updates."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hanse_learning
from hanse_fabric.errors import HanseError
from hanse_learning.server.bulyan import Bulyan
from hanse_learning.server.geometric_median import GeometricMedian
from hanse_learning.server.gram import gram_of, squared_distances
from hanse_learning.server.krum import Krum
from hanse_learning.server.reduction import normalize

ROBUST = {
    "median": {"name": "median"},
    "trimmed_mean": {"name": "trimmed_mean", "fraction": 0.3},
    "geometric_median": {"name": "geometric_median"},
    "krum": {"name": "krum", "byzantine": 2},
    "multi_krum": {"name": "multi_krum", "byzantine": 2},
    "bulyan": {"name": "bulyan", "byzantine": 2},
}


def _updates(count, columns, dtype=np.float64, seed=1):
    return np.random.default_rng(seed).standard_normal((count, columns)).astype(dtype)


def _reduced(reduction, updates, weights=None):
    """The reduction by itself: measured, reweighed, combined."""
    weights = normalize([1.0] * len(updates)) if weights is None else weights
    weights = reduction.reweigh(reduction.measure(updates), weights, {})
    out = np.empty(updates.shape[1], np.float64 if updates.dtype == np.float64 else np.float32)
    reduction.combine(updates, weights, out)
    return out


def _krum_order(updates, byzantine, left):
    """Indices of `left` by score, from the definition."""

    def score(i):
        distances = sorted(float(np.sum((updates[i] - updates[j]) ** 2)) for j in left if j != i)
        return sum(distances[: max(1, len(left) - byzantine - 2)])

    return sorted(left, key=lambda i: (score(i), i))


def _bulyan(updates, byzantine):
    left, chosen = list(range(len(updates))), []
    for _ in range(len(updates) - 2 * byzantine):
        chosen.append(_krum_order(updates, byzantine, left)[0])
        left.remove(chosen[-1])
    kept, beta = updates[chosen], len(chosen) - 2 * byzantine
    made = []
    for column in kept.T:
        median = np.median(column)
        made.append(np.mean(sorted(column, key=lambda value: (abs(value - median), value))[:beta]))
    return np.array(made)


@settings(max_examples=40, deadline=None)
@given(byzantine=st.integers(0, 3), more=st.integers(0, 6), columns=st.integers(1, 40), seed=st.integers(0, 10_000))
def test_krum_and_multi_krum_choose_as_their_definition_says(byzantine, more, columns, seed):
    updates = _updates(2 * byzantine + 3 + more, columns, seed=seed)
    order = _krum_order(updates, byzantine, list(range(len(updates))))
    np.testing.assert_array_equal(_reduced(Krum(byzantine), updates), updates[order[0]])
    keep = len(updates) - byzantine
    np.testing.assert_allclose(
        _reduced(Krum(byzantine, None), updates), updates[order[:keep]].mean(axis=0), 1e-12, 1e-13
    )
    np.testing.assert_allclose(_reduced(Krum(byzantine, 2), updates), updates[order[:2]].mean(axis=0), 1e-12, 1e-13)


@settings(max_examples=40, deadline=None)
@given(byzantine=st.integers(0, 3), more=st.integers(0, 5), columns=st.integers(1, 30), seed=st.integers(0, 10_000))
def test_bulyan_is_its_definition(byzantine, more, columns, seed):
    updates = _updates(4 * byzantine + 3 + more, columns, seed=seed)
    np.testing.assert_allclose(_reduced(Bulyan(byzantine), updates), _bulyan(updates, byzantine), 1e-12, 1e-13)


def test_bulyan_does_not_lose_digits_to_values_that_it_leaves_out():
    updates = _updates(11, 300, np.float32)
    updates[:2] = -3e38
    expected = _bulyan(updates[2:].astype(np.float64), 0)
    found = _reduced(Bulyan(2), updates)
    assert np.all(np.abs(found) <= np.abs(updates[2:]).max(axis=0))
    assert np.abs(found - expected).mean() < 0.5  # the mean of 3 of 7 differs from that of 9, but has about its size


@pytest.mark.parametrize(("count", "columns"), [(1, 1), (3, 700), (16, 1024 * 9 + 5), (70, 300), (600, 130)])
def test_the_gram_matrix_is_the_matrix_of_inner_products(count, columns):
    updates = _updates(count, columns, np.float32)
    exact = updates.astype(np.float64) @ updates.astype(np.float64).T
    np.testing.assert_allclose(gram_of(list(updates)), exact, 1e-11, 1e-9)
    distances = squared_distances(exact)
    assert np.all(distances >= 0)
    assert np.array_equal(distances, distances.T)
    assert not np.diagonal(distances).any()


def test_distances_among_the_honest_survive_an_update_of_enormous_length():
    updates = _updates(9, 5000, np.float32)
    alone = squared_distances(gram_of(list(updates)))
    loud = [*updates, np.full(5000, 1e15, np.float32)]
    np.testing.assert_allclose(squared_distances(gram_of(loud))[:9, :9], alone, 1e-9)


def _objective(point, updates, weights):
    return float(weights @ np.linalg.norm(updates - point, axis=1))


@pytest.mark.parametrize("seed", range(5))
def test_no_step_from_the_geometric_median_is_downhill(seed):
    updates = _updates(9, 6, seed=seed)
    weights = normalize([1.0 + k for k in range(9)])
    found = _reduced(GeometricMedian(1e-9, 1000), updates, weights)
    best = _objective(found, updates, weights)
    rng = np.random.default_rng(seed)
    for size in (1e-1, 1e-2, 1e-3):
        for _ in range(50):
            step = rng.standard_normal(6)
            assert _objective(found + size * step, updates, weights) >= best
    assert _objective(weights @ updates, updates, weights) > best  # the mean is not it


def test_the_geometric_median_of_a_triangle_is_fermats_point():
    # Angles of 120 degrees from every corner: for (-1, 0), (1, 0), (0, sqrt 3) that is (0, 1 / sqrt 3).
    corners = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 3**0.5]])
    np.testing.assert_allclose(_reduced(GeometricMedian(1e-9, 1000), corners), [0, 3**-0.5], atol=1e-9)


def test_the_geometric_median_of_a_majority_at_one_point_is_that_point():
    updates = np.array([[0.0, 0.0]] * 3 + [[5.0, 1.0], [-7.0, 40.0]])
    np.testing.assert_allclose(_reduced(GeometricMedian(1e-9, 1000), updates), [0, 0], atol=1e-6)


@pytest.mark.parametrize("name", ROBUST)
@pytest.mark.parametrize("attack", ["flip", "scale", "constant"])
def test_two_hostile_updates_of_eleven_do_not_move_a_robust_reduction_away(name, attack):
    rng = np.random.default_rng(3)
    truth = rng.standard_normal(400)
    updates = truth + 0.3 * rng.standard_normal((11, 400))
    honest = updates[2:].mean(axis=0)
    updates[:2] = {"flip": -20 * updates[:2], "scale": 1e6 * updates[:2], "constant": np.full((2, 400), 1e9)}[attack]
    zeros = np.zeros(400)
    made, _ = hanse_learning.reduce({"reduction": ROBUST[name]}, zeros, list(updates))
    mean, _ = hanse_learning.reduce({}, zeros, list(updates))
    length = np.linalg.norm(honest)
    assert np.linalg.norm(made - honest) < 0.4 * length
    assert np.linalg.norm(mean - honest) > 2 * length  # the control: the mean is moved


@pytest.mark.parametrize(
    ("reduction", "count"),
    [
        ({"name": "krum", "byzantine": 2}, 7),
        ({"name": "multi_krum", "byzantine": 1}, 5),
        ({"name": "multi_krum", "byzantine": 0, "keep": 4}, 4),
        ({"name": "bulyan", "byzantine": 1}, 7),
    ],
)
def test_too_few_updates_are_refused(reduction, count):
    hanse_learning.reduce({"reduction": reduction}, np.zeros(5), [*_updates(count, 5)])
    with pytest.raises(HanseError, match=f"{count - 1} is not {count} or more, which {reduction['name']} takes"):
        hanse_learning.reduce({"reduction": reduction}, np.zeros(5), [*_updates(count - 1, 5)])


def test_equal_updates_are_reduced_to_themselves():
    updates = np.repeat(_updates(1, 50), 11, axis=0)
    for section in ROBUST.values():
        made, _ = hanse_learning.reduce({"reduction": section}, np.zeros(50), list(updates))
        np.testing.assert_allclose(made, updates[0], 1e-12)
