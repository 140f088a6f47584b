"""Central noise that is correlated over a run: as the matrix has it, whatever blocks and shards a round is cut into."""

from __future__ import annotations

import numpy as np
import pytest

from hanse_fabric.errors import HanseError
from hanse_fabric.messages.privacy import Privacy, PrivacyTerms
from hanse_learning.server.private_mean import PrivateMean
from hanse_learning.server.strategy import Strategy, build_strategy
from hanse_privacy.accounting.accountant import make_accountant
from hanse_privacy.accounting.terms import round_noise
from hanse_privacy.correlated.matrix import inverse_column, round_name
from hanse_privacy.correlated.optimum import matrix_of
from hanse_privacy.correlated.sensitivity import sensitivity

SEED = bytes(range(32))
ROUNDS, COLUMNS = 6, 40_000
BANDED = {"name": "banded", "bands": 3}
SITES = (("a", "b"), ("c", "d", "e"), ("f", "g"), ("a", "b"), ("c", "d"), ("e", "f", "g"))


def section(**changes: object) -> Privacy:
    body = {
        "placement": "central", "mechanism": "dp_ftrl", "clip": 2.0, "noise_multiplier": 3.0, "matrix": BANDED,
        "min_separation": 3,
    }  # fmt: skip
    return Privacy.model_validate({**body, **changes})


def terms(number: int, privacy: Privacy) -> PrivacyTerms:
    matrix = matrix_of(privacy, ROUNDS)
    return PrivacyTerms(privacy=privacy, rounds=ROUNDS, round=number, active=4, correlation=matrix)


def mean_of(number: int, privacy: Privacy, sites: tuple[tuple[str, ...], ...] = SITES) -> PrivateMean:
    before = tuple(round_name(at, names) for at, names in enumerate(sites[: number - 1], 1))
    made = PrivateMean.of(terms(number, privacy), SEED, None, before)
    return made.within("p", "run", f"r{number}-reduce", *sites[number - 1], participants=sites[number - 1])


def noise_of(number: int, privacy: Privacy, sites: tuple[tuple[str, ...], ...] = SITES) -> np.ndarray:
    """In the round's sum."""
    out, count = np.zeros(COLUMNS, np.float64), len(sites[number - 1])
    mean_of(number, privacy, sites).add_noise(out, 96, count, 8)
    return out * count


@pytest.mark.parametrize("matrix", [BANDED, {"name": "blt", "buffers": 2}, {"name": "banded", "bands": 1}])
def test_the_sums_of_all_rounds_have_the_noise_of_the_matrix(matrix: dict[str, object]) -> None:
    privacy = section(matrix=matrix)
    noise = np.array([noise_of(number, privacy) for number in range(1, ROUNDS + 1)])
    known = matrix_of(privacy, ROUNDS)
    assert known is not None
    first = inverse_column(known, ROUNDS)
    inverse = np.array([[first[row - at] if row >= at else 0.0 for at in range(ROUNDS)] for row in range(ROUNDS)])
    np.testing.assert_allclose(noise @ noise.T / COLUMNS / 6.0**2, inverse @ inverse.T, atol=0.05)


def test_rounds_that_are_cut_into_other_blocks_look_back_at_the_same_noise() -> None:
    strategy, weights = Strategy(mean_of(4, section()), build_strategy({}).optimizer), np.full(2, 0.5)
    updates = [np.zeros(300_000, np.float32) for _ in range(2)]
    whole, parts = np.zeros(300_000, np.float32), np.zeros(300_000, np.float32)
    strategy.apply(whole, updates, weights, {}, 1, at=104)
    for start, stop in ((0, 7), (7, 20_001), (20_001, 300_000)):
        rows = [row[start:stop] for row in updates]
        strategy.apply(parts[start:stop], rows, weights, {}, 1, at=104 + 4 * start)
    # Values are rounded by each block's own coins: a step is 2^-40 of the noise.
    np.testing.assert_allclose(whole, parts, rtol=1e-6, atol=1e-9)


def test_other_participants_have_other_noise_and_the_rounds_after_it_follow_theirs() -> None:
    others = (*SITES[:2], ("g",), *SITES[3:])
    assert abs(np.corrcoef(noise_of(3, section()), noise_of(3, section(), others))[0, 1]) < 0.9
    one, other = noise_of(4, section()), noise_of(4, section(), others)
    assert 0.1 < abs(np.corrcoef(one, other)[0, 1]) < 0.999


def test_noise_is_the_same_when_a_reduction_is_done_again() -> None:
    np.testing.assert_array_equal(noise_of(5, section()), noise_of(5, section()))


def test_a_reduction_that_does_not_know_the_rounds_before_it_is_refused() -> None:
    with pytest.raises(HanseError, match="a name for each round before round 4"):
        PrivateMean.of(terms(4, section()), SEED, None, ("x",))


def test_epsilon_becomes_the_noise_that_the_whole_run_needs_and_is_charged_once() -> None:
    privacy = section(epsilon=3.0, noise_multiplier=None)
    made, matrix = round_noise(terms(2, privacy), "a"), matrix_of(privacy, ROUNDS)
    assert matrix is not None
    change = 2 * sensitivity(matrix, rounds=ROUNDS, separation=3)
    assert made.event.amount == pytest.approx(made.multiplier / change)
    assert (made.count, made.unit) == (1, "run")
    accountant = make_accountant()
    accountant.compose(made.event)
    assert 2.99 < accountant.epsilon(1e-5) <= 3.0


def test_the_identity_in_every_round_costs_what_plain_noise_does() -> None:
    privacy = section(matrix={"name": "banded", "bands": 1}, min_separation=1)
    whole, each = make_accountant(), make_accountant()
    whole.compose(round_noise(terms(1, privacy), "a").event)
    plain = Privacy(placement="central", mechanism="gaussian", clip=2.0, noise_multiplier=3.0)
    each.compose(round_noise(PrivacyTerms(privacy=plain, rounds=ROUNDS, round=1, active=4), "a").event, ROUNDS)
    assert whole.epsilon(1e-5) == pytest.approx(each.epsilon(1e-5))


def test_a_hub_that_does_not_tell_the_matrix_is_refused() -> None:
    bare = terms(1, section()).model_copy(update={"correlation": None})
    with pytest.raises(HanseError, match="the numbers of the matrix"):
        round_noise(bare, "a")


@pytest.mark.parametrize(
    "changes", [{"matrix": None}, {"min_separation": None}, {"mechanism": "gaussian"}, {"matrix": {"name": "tree"}}]
)
def test_a_section_that_lacks_its_matrix_or_has_one_in_vain_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"with mechanism dp_ftrl|tag 'tree'"):
        section(**changes)
