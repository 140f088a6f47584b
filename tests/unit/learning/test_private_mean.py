"""Central privacy: clipped, with the noise that was paid for, the same when it is done again, another otherwise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hanse_fabric.errors import HanseError
from hanse_fabric.messages.privacy import Privacy, PrivacyTerms
from hanse_learning.server.config import check_strategy
from hanse_learning.server.private_mean import LEARNING_RATE, PrivateMean
from hanse_learning.server.reduction import Array
from hanse_learning.server.strategy import Strategy, build_strategy
from hanse_privacy.accounting.accountant import make_accountant
from hanse_privacy.accounting.events import gaussian

COLUMNS = 200_000
SEED = bytes(range(32))


def terms(rounds: int = 1, **section: object) -> PrivacyTerms:
    body = {"placement": "central", "mechanism": "gaussian", "clip": 2.0, "noise_multiplier": 3.0, **section}
    return PrivacyTerms(privacy=Privacy.model_validate(body), rounds=rounds, round=1, active=4)


def made(seed: bytes = SEED, clip: float | None = None, **section: object) -> PrivateMean:
    return PrivateMean.of(terms(**section), seed, clip).within("p", "run", "r1-reduce", "a/1", "b/2")


def reduced(mean: PrivateMean, updates: list[Array], at: int = 0) -> Array:
    weights = np.full(len(updates), 1 / len(updates))
    out = np.empty_like(updates[0])
    mean.combine(updates, mean.reweigh(mean.measure(updates), weights, {}), out)
    mean.add_noise(out, at, len(updates))
    return out


def zeros(count: int = 4) -> list[Array]:
    return [np.zeros(COLUMNS, np.float32) for _ in range(count)]


@pytest.mark.parametrize(("mechanism", "factor"), [("gaussian", 1.0), ("laplace", math.sqrt(2))])
def test_the_noise_of_the_mean_is_the_multiplier_times_the_clip_over_the_number_of_sites(
    mechanism: str, factor: float
) -> None:
    noise = reduced(made(mechanism=mechanism), zeros())
    assert noise.std() == pytest.approx(factor * 3.0 * 2.0 / 4, rel=0.02)
    assert abs(noise.mean()) < 0.02


@pytest.mark.parametrize(("mechanism", "order"), [("gaussian", 2), ("laplace", 1)])
def test_a_long_update_counts_with_the_clips_length_in_the_mechanisms_norm(mechanism: str, order: int) -> None:
    mean = made(mechanism=mechanism, noise_multiplier=1e-6)
    long = np.full(1000, 5.0, np.float32)
    short = np.zeros(1000, np.float32)
    short[0] = 0.5
    total = reduced(mean, [long, short]) * 2 - short
    assert np.linalg.norm(total, order) == pytest.approx(2.0, rel=1e-4)
    assert np.linalg.norm(total, order) <= 2.0 + 1e-3


def test_noise_repeats_for_the_same_job_and_differs_for_other_columns_updates_and_seeds() -> None:
    mean, updates = made(), zeros()
    first = reduced(mean, updates)
    np.testing.assert_array_equal(first, reduced(made(), updates))
    others = [
        reduced(mean, updates, at=4 * COLUMNS),
        reduced(made(seed=bytes(32)), updates),
        reduced(mean.within("p", "run", "r1-reduce", "a/1"), updates),
        reduced(mean.within("p", "run", "r2-reduce", "a/1", "b/2"), updates),
    ]
    for other in others:
        assert abs(float(np.corrcoef(first, other)[0, 1])) < 0.02


def test_shards_of_any_cut_along_tiles_make_the_same_model() -> None:
    strategy = Strategy(made(), build_strategy({}).optimizer)
    updates = [np.full(400_000, k, np.float32) for k in range(4)]
    weights = np.full(4, 0.25)
    whole = np.zeros(400_000, np.float32)
    strategy.apply(whole, updates, weights, {}, 1, at=96)
    cut = 2 << 17
    parts = np.zeros(400_000, np.float32)
    strategy.apply(parts[:cut], [row[:cut] for row in updates], weights, {}, 1, at=96)
    strategy.apply(parts[cut:], [row[cut:] for row in updates], weights, {}, 1, at=96 + 4 * cut)
    np.testing.assert_array_equal(whole, parts)


def test_a_private_mean_without_a_job_context_is_refused() -> None:
    with pytest.raises(HanseError, match="context"):
        PrivateMean.of(terms(), SEED, None).add_noise(np.zeros(3), 0, 2)


def test_unequal_weights_are_refused() -> None:
    mean = made()
    with pytest.raises(HanseError, match="uniform"):
        mean.reweigh(mean.measure(zeros(2)), np.array([0.9, 0.1]), {})


def test_an_epsilon_becomes_the_noise_that_all_rounds_need() -> None:
    mean = PrivateMean.of(terms(10, epsilon=4.0, noise_multiplier=None), SEED, None)
    accountant = make_accountant()
    accountant.compose(gaussian(mean.noise), 10)
    assert 3.9 < accountant.epsilon(1e-5) <= 4.0


def test_the_adaptive_norm_moves_toward_the_quantile_and_costs_what_the_terms_say() -> None:
    """Both releases together are one of the terms' noise: 1/total^2 = 1/mean^2 + 1/count^2."""
    mean = made(adaptive_clip=0.5, noise_multiplier=0.02)
    updates = [np.array([size], np.float32) for size in (0.1, 0.2, 0.3, 5.0)]
    moved = mean.next_clip(mean.measure(updates))
    assert moved is not None
    assert moved == pytest.approx(2.0 * math.exp(-LEARNING_RATE * (0.75 - 0.5)), rel=0.05)
    assert made(clip=moved, adaptive_clip=0.5).clip == moved
    assert made().next_clip(mean.measure(updates)) is None

    noisy = made(adaptive_clip=0.5)
    deviation = reduced(noisy, zeros()).std() / (2 * 2.0 / 4)  # in sensitivities
    count = max(4 / 20, 2 * noisy.noise)
    assert (deviation**-2 + count**-2) ** -0.5 == pytest.approx(noisy.noise, rel=0.02)


def test_a_private_mean_is_refused_for_noise_that_is_not_central() -> None:
    with pytest.raises(HanseError, match="central"):
        PrivateMean.of(terms(placement="local"), SEED, None)


def test_the_coordinators_section_is_read_and_measures_first() -> None:
    section = {"name": "private_mean", "terms": terms().model_dump(mode="json"), "seed": "AAAA" * 10 + "AAA="}
    assert check_strategy({"reduction": section}).reduction.measures()
    assert isinstance(build_strategy({"reduction": section}).reduction, PrivateMean)
