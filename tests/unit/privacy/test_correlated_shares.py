"""Shares of correlated noise in masked sums: their sum has the matrix's law, whatever is done again or otherwise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hanse_fabric.errors import HanseError
from hanse_fabric.messages.masking import RingPlan
from hanse_fabric.messages.privacy import Privacy, PrivacyTerms
from hanse_fabric.tensors.file import read_tensors, write_tensors
from hanse_fabric.tensors.layout import Entry, Layout
from hanse_privacy.accounting.accountant import make_accountant
from hanse_privacy.accounting.terms import round_noise
from hanse_privacy.correlated.matrix import LARGEST_SIGMA, inverse_column
from hanse_privacy.correlated.optimum import matrix_of
from hanse_privacy.correlated.shares import CHUNK, CorrelatedShare, commitment, run_key
from hanse_privacy.noise.aggregate import finest_fraction, largest_scale, least_answers, noise_tail, spread
from hanse_privacy.noise.distributed import make_share
from hanse_privacy.noise.exact import SMOOTH
from hanse_privacy.noise.site import correlated_noise, site_noise
from hanse_privacy.ring.codec import decode
from hanse_privacy.ring.files import write_masked
from hanse_privacy.ring.plan import make_plan
from hanse_schemas.secure_aggregation import SecureAggregation

ROUNDS, COUNT, SITES = 6, 3 * CHUNK + 17, 5
FINEST = 36
NAMES = tuple(f"site-{at}" for at in range(SITES))


def terms(number: int = 1, *, told: bool = True, **changes: object) -> PrivacyTerms:
    body = {
        "placement": "distributed", "mechanism": "dp_ftrl", "clip": 2.0, "noise_multiplier": 3.0, "min_separation": 3,
        "matrix": {"name": "banded", "bands": 3},
    }  # fmt: skip
    privacy = Privacy.model_validate({**body, **changes})
    matrix = matrix_of(privacy, ROUNDS) if told else None
    return PrivacyTerms(
        privacy=privacy, rounds=ROUNDS, round=number, active=SITES, correlation=matrix, members=NAMES,
        training=NAMES[:3],
    )  # fmt: skip


def plan_for(asked: PrivacyTerms, bound: float = 4.0) -> RingPlan:
    settings = SecureAggregation.model_validate({"mode": "compensator", "bits": 64, "bound": bound})
    plan, finest = make_plan(settings, participants=SITES, weighting="uniform", tail=noise_tail(asked)), FINEST
    return plan.model_copy(update={"default": plan.default.model_copy(update={"fraction": finest})})


def key_of(name: str, run: str = "run") -> bytes:
    return run_key(bytes(range(32)), "alpha", run, name)


def share_of(name: str, number: int, **changes: object) -> CorrelatedShare:
    asked = terms(number, **changes)
    fraction = plan_for(asked).default.fraction
    made = make_share(asked, round_noise(asked, name).scale, fraction)
    return CorrelatedShare.of(asked, made.steps, key_of(name))


@pytest.mark.parametrize("colluding", [0, 2])
def test_the_sum_of_the_shares_of_all_who_do_not_collude_has_the_matrixs_law(colluding: int) -> None:
    honest, step = NAMES[colluding:], 2.0 ** -plan_for(terms()).default.fraction
    noise = (
        np.array(
            [
                sum(share_of(name, number, colluding=colluding).steps(COUNT, 0) for name in honest)
                for number in range(1, ROUNDS + 1)
            ]
        )
        * step
    )  # (rounds, COUNT)
    matrix = terms().correlation
    assert matrix is not None
    first = inverse_column(matrix, ROUNDS)
    inverse = np.array([[first[row - at] if row >= at else 0.0 for at in range(ROUNDS)] for row in range(ROUNDS)])
    sigma = 3.0 * 2.0
    found = noise @ noise.T / COUNT / sigma**2
    # Variances and autocovariances of 24,593 numbers: five standard errors of the widest.
    np.testing.assert_allclose(found, inverse @ inverse.T, atol=5 * spread(terms()) ** 2 * np.sqrt(2 / COUNT))
    assert abs(found[0, 1]) > 0.2  # of independent noise it is none


def masked_sum(folder: Path, number: int, updates: np.ndarray, *, noise: bool = True) -> np.ndarray:
    """What rings of all members sum to, in the update's units: (COUNT,)."""
    layout, total, asked = Layout.of((Entry("weight", "F32", (COUNT,)),)), 0, terms(number)
    plan = plan_for(asked)
    for name, update in zip(NAMES, updates, strict=True):
        plain, ring = folder / "plain", folder / "ring"
        write_tensors(plain, layout, {"weight": update})
        adjust = correlated_noise(asked, name, plan, key_of(name)) if noise else None
        write_masked(plain, ring, plan, weight=1, seed=None, adjust=adjust)
        total = total + read_tensors(ring)[1]["weight"]
    return decode(total, plan.default)


def test_the_noise_in_a_masked_sum_is_the_sum_of_the_shares_and_nothing_else(tmp_path: Path) -> None:
    updates = np.random.default_rng(0).normal(scale=0.01, size=(SITES, COUNT)).astype(np.float32)
    step = 2.0 ** -plan_for(terms()).default.fraction
    for number in (1, 4):
        shares = sum(share_of(name, number).steps(COUNT, 0) for name in NAMES) * step
        plain = masked_sum(tmp_path, number, updates, noise=False)
        noisy = masked_sum(tmp_path, number, updates)
        # Values are rounded to the nearest, or at random: a step for each site.
        np.testing.assert_allclose(noisy - shares, plain, rtol=0, atol=SITES * step)
        assert np.abs(noisy - plain).mean() > 1.0


def test_a_round_that_is_done_again_has_the_same_bits_with_its_rounding(tmp_path: Path) -> None:
    updates = np.random.default_rng(1).normal(scale=0.01, size=(SITES, COUNT)).astype(np.float32)
    np.testing.assert_array_equal(masked_sum(tmp_path, 3, updates), masked_sum(tmp_path, 3, updates))


def test_noise_is_the_same_however_it_is_cut() -> None:
    share = share_of("site-0", 3)
    whole = share.steps(COUNT, 0)
    for first, count in ((0, 1), (5, CHUNK), (CHUNK - 1, 2), (2 * CHUNK, CHUNK + 17), (COUNT, 0)):
        np.testing.assert_array_equal(share.steps(count, first), whole[first : first + count])


def test_other_sites_runs_and_secrets_have_other_noise() -> None:
    keys = {key_of("site-0"), key_of("site-1"), key_of("site-0", "next"), run_key(bytes(32), "alpha", "run", "site-0")}
    assert len(keys) == 4
    assert commitment(bytes(32)) != commitment(bytes(range(32)))
    assert bytes(32).hex() not in commitment(bytes(32))


def test_every_share_is_a_step_wider_than_its_part_and_never_narrower() -> None:
    asked = terms(colluding=1)
    fraction = plan_for(asked).default.fraction
    share = make_share(asked, 6.0, fraction)
    needed = (6.0**2 + float(SMOOTH) * 4.0**-fraction) / (SITES - 1)
    assert needed <= (share.steps * share.step) ** 2 <= needed * (1 + 1e-3)


@pytest.mark.parametrize("changes", [{}, {"epsilon": 0.5, "noise_multiplier": None}, {"colluding": 3}])
def test_the_ring_has_room_for_the_widest_rounds_noise_by_what_the_hub_reckons_alone(
    changes: dict[str, object],
) -> None:
    asked = terms(ROUNDS, **changes)
    assert largest_scale(asked) >= round_noise(asked, "a").scale
    plan = plan_for(asked)
    correlated_noise(asked, "site-0", plan, key_of("site-0"))
    finest = finest_fraction(asked)
    assert finest is not None
    assert make_share(asked, round_noise(asked, "a").scale, finest).steps <= LARGEST_SIGMA
    assert spread(asked) > 1.05  # by how much the last round's noise is wider
    narrow = plan.model_copy(update={"default": plan.default.model_copy(update={"bits": 32})})
    with pytest.raises(HanseError, match="overflow 32 bits"):
        correlated_noise(asked, "site-0", narrow, key_of("site-0"))


def test_all_members_are_in_every_sum_whoever_may_collude() -> None:
    assert {least_answers(terms(colluding=away).privacy, SITES) for away in (0, 1, 3)} == {SITES}


def test_a_site_is_charged_once_what_the_sum_of_the_honest_shares_hides() -> None:
    made = round_noise(terms(epsilon=2.0, noise_multiplier=None), "site-0")
    assert (made.unit, made.count, made.chance) == ("run", 1, 0.0)
    accountant = make_accountant()
    accountant.compose(made.event)
    assert 1.99 < accountant.epsilon(1e-5) <= 2.0


def test_shares_of_a_matrix_that_is_not_told_or_not_banded_are_refused() -> None:
    for asked in (terms(told=False), terms(matrix={"name": "blt", "buffers": 2})):
        with pytest.raises(HanseError, match=r"numbers of the matrix|a banded matrix"):
            correlated_noise(asked, "site-0", plan_for(terms()), key_of("site-0"))


def test_correlated_noise_is_never_drawn_as_if_it_were_independent() -> None:
    with pytest.raises(HanseError, match="independent from round to round"):
        site_noise(terms(), "site-0", plan_for(terms()), Path())
