"""Matrices that correlate noise: sensitivity against all patterns there are, errors against dense algebra, and the best
ones against jax-privacy's."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from correlated_oracle import BANDED, BUFFERED
from hanse_fabric.errors import HanseError
from hanse_fabric.messages.privacy import Correlation
from hanse_privacy.correlated.descent import least
from hanse_privacy.correlated.matrix import FRACTION, column, inverse_column, prefix_error, widest
from hanse_privacy.correlated.optimum import banded, buffered
from hanse_privacy.correlated.sensitivity import most_participations, sensitivity

IDENTITY = Correlation()


def dense(first: list[float]) -> np.ndarray:
    """The lower triangular Toeplitz matrix with this first column."""
    size = len(first)
    return np.array([[first[row - at] if row >= at else 0.0 for at in range(size)] for row in range(size)])


def patterns(rounds: int, separation: int, most: int) -> Iterator[tuple[int, ...]]:
    """All sets of rounds that a unit may take part in."""
    for count in range(1, most + 1):
        for chosen in itertools.combinations(range(rounds), count):
            if all(after - before >= separation for before, after in itertools.pairwise(chosen)):
                yield chosen


def whole_error(matrix: Correlation, rounds: int, separation: int) -> float:
    return prefix_error(matrix, rounds) * sensitivity(matrix, rounds=rounds, separation=separation)


numbers = st.lists(st.floats(0, 1), max_size=8)
falling = numbers.map(lambda found: Correlation(weights=tuple(sorted(found, reverse=True))))
buffers = st.lists(st.tuples(st.floats(0, 0.25), st.floats(0, 0.99)), min_size=1, max_size=4).map(
    lambda found: Correlation(weights=tuple(one for one, _ in found), decays=tuple(other for _, other in found))
)


@given(
    matrix=st.one_of(falling, buffers), rounds=st.integers(1, 9), separation=st.integers(1, 9), most=st.integers(1, 9)
)
def test_the_sensitivity_is_that_of_the_worst_of_all_patterns(
    matrix: Correlation, rounds: int, separation: int, most: int
) -> None:
    separation = min(separation, rounds)
    whole = dense(column(matrix, rounds))
    worst = max(np.linalg.norm(whole[:, list(chosen)].sum(axis=1)) for chosen in patterns(rounds, separation, most))
    found = sensitivity(matrix, rounds=rounds, separation=separation, participations=most)
    assert worst <= found <= worst * (1 + 1e-8)


@given(weights=numbers, rounds=st.integers(1, 9))
def test_few_bands_need_not_fall(weights: list[float], rounds: int) -> None:
    separation = min(rounds, len(weights) + 1)
    matrix = Correlation(weights=tuple(weights[: separation - 1]))
    whole = dense(column(matrix, rounds))
    worst = max(np.linalg.norm(whole[:, list(chosen)].sum(axis=1)) for chosen in patterns(rounds, separation, rounds))
    assert sensitivity(matrix, rounds=rounds, separation=separation) == pytest.approx(worst)


@given(matrix=st.one_of(falling, buffers), seed=st.integers(0, 2**32))
def test_no_vectors_change_more_than_the_sensitivity(matrix: Correlation, seed: int) -> None:
    rng, rounds, separation = np.random.default_rng(seed), 8, 3
    found = sensitivity(matrix, rounds=rounds, separation=separation)
    for chosen in patterns(rounds, separation, rounds):
        added = np.zeros((rounds, 3))
        directions = rng.normal(size=(len(chosen), 3))
        added[list(chosen)] = directions / np.linalg.norm(directions, axis=1, keepdims=True)
        assert np.linalg.norm(dense(column(matrix, rounds)) @ added) <= found


@given(matrix=st.one_of(falling, buffers), rounds=st.integers(1, 20))
def test_inverse_and_errors_are_those_of_dense_algebra(matrix: Correlation, rounds: int) -> None:
    inverse = np.linalg.inv(dense(column(matrix, rounds)))
    np.testing.assert_allclose(inverse_column(matrix, rounds), inverse[:, 0], rtol=1e-6, atol=1e-6)
    noise = np.tril(np.ones((rounds, rounds))) @ inverse
    assert prefix_error(matrix, rounds) == pytest.approx(np.linalg.norm(noise) / math.sqrt(rounds), rel=1e-6)
    assert widest(matrix, rounds) == pytest.approx(np.linalg.norm(inverse[-1]), rel=1e-6)


def test_the_identity_is_independent_noise() -> None:
    rounds = 24
    assert banded(1, rounds=rounds, separation=4) == IDENTITY
    assert prefix_error(IDENTITY, rounds) == pytest.approx(math.sqrt((rounds + 1) / 2))
    for separation in (1, 4, 5, 24):
        times = most_participations(rounds, separation)
        assert sensitivity(IDENTITY, rounds=rounds, separation=separation) == pytest.approx(math.sqrt(times))
    assert sensitivity(IDENTITY, rounds=rounds, separation=4, participations=2) == pytest.approx(math.sqrt(2))


@pytest.mark.parametrize(("question", "known"), BANDED.items())
def test_the_best_banded_matrix_is_jax_privacys(question: tuple[int, int, int], known: float) -> None:
    rounds, separation, bands = question
    found = whole_error(banded(bands, rounds=rounds, separation=separation), rounds, separation)
    assert found == pytest.approx(known, rel=1e-4)


@pytest.mark.parametrize(("question", "known"), BUFFERED.items())
def test_the_best_buffered_matrix_is_jax_privacys(question: tuple[int, int, int], known: float) -> None:
    rounds, separation, count = question
    found = whole_error(buffered(count, rounds=rounds, separation=separation), rounds, separation)
    assert found == pytest.approx(known, rel=1e-4)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32))
def test_no_matrix_near_the_best_one_is_better(seed: int) -> None:
    rng, rounds, separation = np.random.default_rng(seed), 40, 8
    best = banded(8, rounds=rounds, separation=separation)
    moved = np.clip(np.array(best.weights) + rng.normal(scale=0.03, size=7), 0, None)
    other = Correlation(weights=tuple(moved.tolist()))
    assert whole_error(best, rounds, separation) <= whole_error(other, rounds, separation) * (1 + 1e-4)


def test_correlated_noise_is_less_than_independent_noise_and_more_of_it_is_better() -> None:
    errors = [whole_error(banded(bands, rounds=200, separation=20), 200, 20) for bands in (1, 2, 5, 20)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.5 * errors[0]
    assert whole_error(buffered(3, rounds=200, separation=20), 200, 20) < 0.55 * errors[0]


def test_numbers_of_banded_matrices_are_whole_in_units_that_sites_reckon_in() -> None:
    for weight in banded(12, rounds=100, separation=12).weights:
        assert (weight * 2**FRACTION).is_integer()


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: banded(11, rounds=10, separation=10), "matrix.bands"),
        (lambda: banded(5, rounds=10, separation=4), "min_separation, 4"),
        (lambda: banded(0, rounds=10, separation=4), "matrix.bands"),
        (lambda: banded(2, rounds=10, separation=11), "min_separation"),
        (lambda: banded(1, rounds=10, separation=0), "min_separation"),
        (lambda: buffered(11, rounds=10, separation=10), "matrix.buffers"),
        (lambda: buffered(2, rounds=10, separation=11), "min_separation"),
        (lambda: buffered(64, rounds=100_000, separation=10), "matrix.buffers"),
        (lambda: sensitivity(IDENTITY, rounds=3, separation=4), "min_separation"),
        (lambda: sensitivity(IDENTITY, rounds=3, separation=2, participations=0), "participations"),
        (lambda: sensitivity(Correlation(weights=(0.1, 0.5)), rounds=3, separation=1), "bands that rise"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_rounds_or_has_no_bound_is_refused(make: object, field: str) -> None:
    with pytest.raises(HanseError, match=field):
        make()  # type: ignore[operator]


def test_descent_finds_the_least_value_of_a_narrow_valley() -> None:
    def valley(point: list[float]) -> tuple[float, list[float]]:
        x, y = point
        return (1 - x) ** 2 + 100 * (y - x * x) ** 2, [2 * x - 2 - 400 * x * (y - x * x), 200 * (y - x * x)]

    assert least(valley, [-1.2, 1.0]) == pytest.approx([1, 1], abs=1e-4)
