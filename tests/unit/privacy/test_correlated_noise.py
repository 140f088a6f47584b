"""Streams of correlated noise: their law, and that a secret and a round make the same noise, and nothing else does."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hanse_fabric.errors import HanseError
from hanse_fabric.messages.privacy import Correlation
from hanse_privacy.correlated.centred import centred_gaussian
from hanse_privacy.correlated.matrix import FRACTION, column, inverse_column
from hanse_privacy.correlated.optimum import banded, buffered
from hanse_privacy.correlated.stream import correlated_steps, slack, source_of
from hanse_privacy.noise.source import NoiseSource

SECRET = bytes(range(32))
N = 1 << 15
MATRICES = {"banded": banded(4, rounds=12, separation=4), "buffered": buffered(2, rounds=12, separation=4)}


def rounds_of(matrix: Correlation, count: int, rounds: int, sigma: int = 1000, site: str = "a") -> np.ndarray:
    """(rounds, count)."""
    return np.array(
        [
            correlated_steps(matrix, sigma, count, number, lambda at: source_of(SECRET, site, at))
            for number in range(1, rounds + 1)
        ]
    )


@pytest.mark.parametrize("centre", [0, 1, 77, 128, 255, -1000 * 256 - 13])
@pytest.mark.parametrize("sigma", [4, 5, 700])
def test_draws_around_a_centre_have_its_mean_and_the_deviation(centre: int, sigma: int) -> None:
    drawn = centred_gaussian(sigma, np.full(1 << 17, centre, dtype=np.int64), NoiseSource(SECRET))
    assert drawn.mean() == pytest.approx(centre / 2**FRACTION, abs=5 * sigma / math.sqrt(1 << 17))
    assert drawn.std() == pytest.approx(sigma, rel=0.01)


@pytest.mark.parametrize("centre", [0, 64, 128, 200])
def test_every_whole_number_around_a_centre_is_as_likely_as_the_law_says(centre: int) -> None:
    count, sigma = 1 << 18, 4
    drawn = centred_gaussian(sigma, np.full(count, centre, dtype=np.int64), NoiseSource(SECRET))
    numbers = np.arange(-60, 61)
    law = np.exp(-((numbers - centre / 2**FRACTION) ** 2) / (2 * sigma**2))
    expected = count * law / law.sum()
    found = np.array([(drawn == number).sum() for number in numbers])
    common = expected > 10
    statistic = ((found[common] - expected[common]) ** 2 / expected[common]).sum()
    assert statistic < common.sum() + 6 * math.sqrt(2 * common.sum())


def test_the_identitys_noise_is_a_plain_discrete_gaussian_anew_in_every_round() -> None:
    noise = rounds_of(Correlation(), N, 4)
    np.testing.assert_allclose(np.cov(noise), 1000**2 * np.eye(4), atol=6 * 1000**2 / math.sqrt(N))


@pytest.mark.parametrize("matrix", MATRICES.values(), ids=MATRICES)
def test_the_noise_is_the_inverse_matrix_of_independent_noise(matrix: Correlation) -> None:
    rounds, sigma = 8, 1000
    noise = rounds_of(matrix, N, rounds, sigma)
    first = inverse_column(matrix, rounds)
    inverse = np.array([[first[row - at] if row >= at else 0.0 for at in range(rounds)] for row in range(rounds)])
    np.testing.assert_allclose(noise @ noise.T / N / sigma**2, inverse @ inverse.T, atol=8 / math.sqrt(N))
    own = column(matrix, rounds)
    whitened = np.array([sum(own[lag] * noise[at - lag] for lag in range(at + 1)) for at in range(rounds)])
    np.testing.assert_allclose(np.cov(whitened) / sigma**2, np.eye(rounds), atol=8 / math.sqrt(N))


def test_shares_of_many_sites_add_up_to_the_same_law_as_one_share_of_all_their_variance() -> None:
    matrix, sites, rounds, sigma = MATRICES["banded"], 25, 3, 4  # the narrowest that there are
    total = sum(rounds_of(matrix, N, rounds, sigma, f"site-{site}") for site in range(sites))
    own = column(matrix, rounds)
    whitened = np.array([sum(own[lag] * total[at - lag] for lag in range(at + 1)) for at in range(rounds)])
    np.testing.assert_allclose(np.cov(whitened), sites * sigma**2 * np.eye(rounds), atol=8 * 400 / math.sqrt(N))
    assert abs(whitened.mean()) < 6 * 20 / math.sqrt(N)


@pytest.mark.parametrize("matrix", MATRICES.values(), ids=MATRICES)
def test_a_kill_at_any_round_changes_no_bit(matrix: Correlation) -> None:
    whole = rounds_of(matrix, 100, 6)
    for number in range(1, 7):  # as a process that began at this very round
        again = correlated_steps(matrix, 1000, 100, number, lambda at: source_of(SECRET, "a", at))
        np.testing.assert_array_equal(again, whole[number - 1])


def test_noise_belongs_to_its_names_alone() -> None:
    matrix = MATRICES["banded"]
    found = [
        correlated_steps(matrix, 1000, 50, 2, lambda at, of=(secret, *names): source_of(*of, at)).tobytes()
        for secret, names in [
            (SECRET, ("p", "run")), (SECRET, ("p", "other")), (SECRET, ("pr", "un")), (SECRET, ("p", "run", 1)),
            (bytes(32), ("p", "run")),
        ]
    ]  # fmt: skip
    assert len(set(found)) == len(found)


def test_only_buffered_sums_are_rounded() -> None:
    assert slack(MATRICES["banded"], 10**6, 100) == 0
    assert slack(MATRICES["buffered"], 10**6, 100) == pytest.approx(10**4)


@pytest.mark.parametrize(
    ("sigma", "number", "matrix", "said"),
    [
        (3, 1, Correlation(), "noise"), (2**40 + 1, 1, Correlation(), "noise"), (10, 0, Correlation(), "round"),
        (10, 1, Correlation(weights=(0.3,)), "multiples of 2"),
    ],
)  # fmt: skip
def test_noise_that_cannot_be_drawn_exactly_is_refused(sigma: int, number: int, matrix: Correlation, said: str) -> None:
    with pytest.raises(HanseError, match=said):
        correlated_steps(matrix, sigma, 4, number, lambda at: source_of(SECRET, at))
