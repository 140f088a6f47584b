"""Distributed noise: what the sum of the shares is, and what the labels say of it."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from hanse_fabric.errors import HanseError
from hanse_fabric.messages.masking import Chosen, Ring, RingPlan
from hanse_fabric.messages.privacy import Privacy, PrivacyTerms
from hanse_fabric.tensors.file import read_tensors, write_tensors
from hanse_fabric.tensors.layout import Entry, Layout
from hanse_privacy.accounting.terms import round_noise
from hanse_privacy.noise.aggregate import aggregate, largest_scale, least_answers, noise_tail
from hanse_privacy.noise.distributed import make_share
from hanse_privacy.noise.labels import coalitions
from hanse_privacy.noise.site import correlated_noise, drawn_noise, paired_noise, site_noise
from hanse_privacy.noise.source import NoiseSource
from hanse_privacy.ring import files
from hanse_privacy.ring.codec import decode
from hanse_privacy.ring.files import SIGNS, clipped_parameters, write_masked
from hanse_privacy.ring.plan import make_plan
from hanse_privacy.ring.rotation import Rotation, pieces
from hanse_schemas.secure_aggregation import SecureAggregation

N = 20_000
FRACTION = 20


def terms(active: int = 10, rounds: int = 1, **fields: object) -> PrivacyTerms:
    section: dict[str, object] = {"placement": "distributed", "mechanism": "discrete_laplace", "noise": "local-laplace"}
    section |= {"noise_multiplier": 1.0} | fields
    return PrivacyTerms(privacy=Privacy.model_validate(section), rounds=rounds, round=1, active=active)


def summed(asked: PrivacyTerms, sites: int, scale: float = 1.0, count: int = N) -> np.ndarray:
    """The sum of so many sites' shares, in units of the scale."""
    share = make_share(asked, scale, FRACTION)
    source = NoiseSource(bytes(32))
    return np.sum([share.sample_steps(count, source) for _ in range(sites)], axis=0) * share.step / scale


def ks(drawn: np.ndarray, law: str) -> float:
    return float(stats.kstest(drawn, law).pvalue)


def test_one_sites_whole_noise_is_laplace() -> None:
    assert ks(summed(terms(), 1), "laplace") > 0.01


@pytest.mark.parametrize(("active", "colluding"), [(3, 1), (10, 4), (100, 60)])
def test_honest_sites_alone_sum_to_the_calibrated_laplace(active: int, colluding: int) -> None:
    asked = terms(active, noise="distributed-gamma", colluding=colluding)
    assert least_answers(asked.privacy, active) == active - colluding
    assert ks(summed(asked, active - colluding), "laplace") > 0.01


def test_shares_by_registered_instead_of_active_sites_are_short() -> None:
    # three registered, two active: the reason why `active` is in the terms
    drawn = summed(terms(3, noise="distributed-gamma"), 2, count=100_000)
    assert drawn.var() / 2 == pytest.approx(2 / 3, abs=0.03)
    assert ks(drawn, "laplace") < 1e-6


@pytest.mark.parametrize("active", [10, 30])
def test_the_sum_of_whole_noise_is_an_n_fold_laplace_and_not_one(active: int) -> None:
    drawn = summed(terms(active), active)
    law = aggregate(terms(active).privacy, active, 1.0)
    assert law.variance == 2 * active
    assert drawn.var() == pytest.approx(law.variance, rel=0.05)
    assert stats.kurtosis(drawn) == pytest.approx(3 / active, abs=0.15)
    assert ks(drawn / math.sqrt(active), "laplace") < 1e-6


def test_gaussian_shares_sum_to_gaussian_noise() -> None:
    asked = terms(9, noise=None, mechanism="discrete_gaussian", colluding=2)
    assert ks(summed(asked, 7), "norm") > 0.01
    assert aggregate(asked.privacy, 9, 1.0).variance == pytest.approx(9 / 7)


def gaussian_gap(steps: float, shares: int) -> float:
    """tau of Kairouz, Liu, Steinke 2021, theorem 1: how far a sum of discrete Gaussians is from one.

    10 times the sum over k < n of exp(-2 pi^2 sigma^2 k/(k+1)): with sigma of 4 steps, less than 1e-60 for each share.

    Args:
        steps: sigma of one share, in steps of the grid.
    """
    return 10 * sum(math.exp(-2 * math.pi**2 * steps**2 * k / (k + 1)) for k in range(1, shares))


def test_a_sum_of_gaussian_shares_is_hardly_less_private_than_one_gaussian() -> None:
    assert gaussian_gap(4, 100) < 1e-60
    assert gaussian_gap(0.5, 4) > 1e-3  # coarse shares are no Gaussian


def test_the_size_of_a_sum_of_laplace_variables() -> None:
    drawn = summed(terms(99), 99)
    exact = 2 * 99 * math.comb(198, 99) / 4**99
    assert exact == pytest.approx(11.21, abs=0.01)
    assert np.abs(drawn).mean() == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize(("active", "claimed"), [(100, 5e-4), (100, 0.01), (100, 0.1), (20, 0.5)])
def test_literal_noise_costs_n_times_the_printed_epsilon(active: int, claimed: float) -> None:
    privacy = terms(active, scale="literal", noise_multiplier=None, epsilon=claimed, delta=0)
    sensitivity = 2 * privacy.privacy.clip
    assert sensitivity / round_noise(privacy, "a").scale == pytest.approx(active * claimed, rel=0.01)


def delta_of_sum(count: int, shift: float, epsilon: float) -> float:
    """The delta at epsilon of one coordinate that changes by `shift`, hidden by `count` Laplace(1) variables: the
    integral of (f(x) - e^epsilon f(x + shift))+, of the density f whose characteristic function is (1 + t^2)^-count."""
    points, width = 1 << 20, 0.001
    frequencies = 2 * np.pi * np.fft.fftfreq(points, width)
    of_here = (1 + frequencies**2) ** -float(count)
    here, there = (
        np.fft.ifft(of_here * np.exp(1j * frequencies * by)).real / width for by in (0.0, shift)
    )  # fmt: skip
    return float(np.maximum(here - np.exp(epsilon) * there, 0.0).sum() * width)


@pytest.mark.parametrize(
    ("active", "claimed", "delta"),
    [(1, 0.5, 0), (5, 0.5, 0.170), (20, 0.5, 0.468), (100, 5e-4, 1.2e-3), (100, 0.01, 2.4e-2), (100, 0.1, 0.242)],
)
def test_the_claimed_epsilon_holds_with_a_large_delta_only(active: int, claimed: float, delta: float) -> None:
    assert delta_of_sum(active, active * claimed, claimed) == pytest.approx(delta, rel=0.02, abs=1e-6)


def test_labels_name_the_coalition_that_defeats_the_noise() -> None:
    asked = terms(noise="distributed-gamma", colluding=3).privacy
    assert least_answers(asked, 10) == 7
    resists, defeated_by = coalitions(asked, 10)
    assert "up to 3 sites" in resists
    assert "more than 3 sites" in defeated_by
    assert coalitions(terms().privacy, 10)[1] == ""
    assert "pool" in coalitions(terms(noise="oblivious").privacy, 10)[1]
    assert "compensator" in coalitions(terms(noise="oblivious-shuffled").privacy, 10)[1]


def test_labels_load_no_numpy() -> None:
    code = "import sys, hanse_privacy.noise.labels, hanse_privacy.noise.aggregate; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"noise": None}, "privacy.noise"),
        ({"mechanism": "gaussian"}, "privacy.noise"),
        ({"mechanism": "staircase"}, "privacy.mechanism"),
        ({"placement": "local"}, "privacy.placement"),
        ({"noise": "distributed-gamma", "colluding": 10}, "privacy.colluding"),
    ],
)
def test_sections_without_shares_are_refused(fields: dict[str, object], named: str) -> None:
    with pytest.raises(HanseError, match=named):
        make_share(terms(**fields), 1.0, FRACTION)


def test_fewer_than_three_sites_have_no_distributed_noise() -> None:
    with pytest.raises(HanseError, match="at least 3"):
        make_share(terms(active=2), 1.0, FRACTION)


def test_noise_below_the_grid_is_refused() -> None:
    with pytest.raises(HanseError, match="on a grid of"):
        make_share(terms(), 1e-7, FRACTION)
    with pytest.raises(HanseError, match="4 steps"):
        make_share(terms(noise=None, mechanism="gaussian"), 8e-6, FRACTION)


def test_noise_exceeds_its_tail_bound_no_more_often_than_the_bound_says() -> None:
    hundred = aggregate(terms(100).privacy, 100, 1.0)
    assert hundred.tail(1e-2) == pytest.approx(51.3, abs=0.1)
    assert hundred.tail(1e-4) == pytest.approx(72.8, abs=0.1)
    assert np.mean(np.abs(summed(terms(100), 100)) > hundred.tail(1e-2)) < 1e-2


@pytest.mark.parametrize("mechanism", ["discrete_laplace", "laplace", "discrete_gaussian", "gaussian"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 20.0])
def test_the_hubs_headroom_covers_the_sites_noise(mechanism: str, epsilon: float) -> None:
    noise = "distributed-gamma" if "laplace" in mechanism else None
    asked = terms(rounds=30, mechanism=mechanism, noise=noise, noise_multiplier=None, epsilon=epsilon)
    assert largest_scale(asked) >= round_noise(asked, "site").scale


def plan_for(asked: PrivacyTerms, **settings: object) -> RingPlan:
    section = SecureAggregation.model_validate({"mode": "ring", "bits": 64} | settings)
    return make_plan(section, participants=asked.active, weighting="uniform", tail=noise_tail(asked))


@pytest.mark.parametrize("noise", ["local-laplace", "distributed-gamma"])
def test_masked_files_carry_a_share_of_noise(noise: str, tmp_path: Path) -> None:
    asked = terms(active=5, noise=noise, colluding=1 if noise == "distributed-gamma" else 0)
    values = np.linspace(-1, 1, N, dtype=np.float32)
    write_tensors(tmp_path / "plain", Layout.of([Entry("w", "F32", (N,))]), {"w": values})
    plan = plan_for(asked)
    total = np.zeros(N, dtype=np.uint64)
    for site in range(5):
        source = NoiseSource(bytes([site]) * 32)
        adjust = site_noise(asked, f"site-{site}", plan, tmp_path / "plain", source=source)
        write_masked(tmp_path / "plain", tmp_path / "masked", plan, weight=1, seed=None, adjust=adjust)
        total += read_tensors(tmp_path / "masked")[1]["w"]
    noise_steps = total.view(np.int64) - 5 * np.trunc(values.astype(np.float64) * 2.0**plan.default.fraction).astype(
        int
    )
    drawn = noise_steps * 2.0**-plan.default.fraction
    expected = aggregate(asked.privacy, 5, round_noise(asked, "site-0").scale)
    assert drawn.var() == pytest.approx(expected.variance, rel=0.05)
    assert abs(drawn.mean()) < 4 * math.sqrt(expected.variance / N)


@pytest.mark.parametrize("rotation", [None, "12" * 32])
def test_a_parameter_that_has_the_name_of_the_signs_is_a_parameter_with_its_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rotation: str | None
) -> None:
    """Such a model is refused; were it not, a plan without signs would have none summed."""
    monkeypatch.setattr(files, "check_names", lambda *_: None)
    asked = terms(active=5, mechanism="discrete_gaussian", noise=None, noise_multiplier=1.0)
    layout = Layout.of([Entry(SIGNS, "F32", (1,)), Entry("w", "F32", (N,))])
    write_tensors(tmp_path / "plain", layout, {SIGNS: np.zeros(1, np.float32), "w": np.full(N, 1e-3, np.float32)})
    plan = plan_for(asked, bits=32).model_copy(update={"rotation": rotation})
    assert plan.signs is None
    assert sum(block.size for block in clipped_parameters(tmp_path / "plain", plan)) == N + 1
    seen = []
    for site in range(5):
        adjust = site_noise(asked, f"site-{site}", plan, tmp_path / "plain", source=NoiseSource(bytes([site]) * 32))
        written = write_masked(tmp_path / "plain", tmp_path / "masked", plan, weight=1, seed=None, adjust=adjust)
        assert (tmp_path / "masked").stat().st_size == written.layout.size
        found = read_tensors(tmp_path / "masked")[1]
        assert (found[SIGNS].size, found["w"].size) == (1, N)
        seen.append(decode(found[SIGNS], plan.default)[0])
    assert np.std(seen) > 0.05  # of zeros: what differs is noise


@pytest.mark.parametrize("rotation", [None, "12" * 32])
def test_each_chosen_parameter_carries_the_noise_of_the_whole_and_no_more_is_sent(
    rotation: str | None, tmp_path: Path
) -> None:
    asked = terms(active=5, mechanism="discrete_gaussian", noise=None, noise_multiplier=0.5)
    values = np.random.default_rng(3).normal(size=N).astype(np.float32)
    values *= 0.9 / np.linalg.norm(values)
    write_tensors(tmp_path / "plain", Layout.of([Entry("w", "F32", (N,))]), {"w": values})
    chosen = {"chosen": Chosen(fraction=0.25, seed="34" * 32), "rotation": rotation}
    plan = plan_for(asked, bits=32, bound=1.0).model_copy(update=chosen)
    write_masked(tmp_path / "plain", tmp_path / "without", plan, weight=1, seed=None)
    total = -5 * decode(read_tensors(tmp_path / "without")[1]["w"], plan.default)
    assert total.size == round(N / 4)
    assert np.linalg.norm(total / 5) < 0.9  # a part of the update is within what the noise is made for
    for site in range(5):
        adjust = site_noise(asked, f"site-{site}", plan, tmp_path / "plain", source=NoiseSource(bytes([site]) * 32))
        write_masked(tmp_path / "plain", tmp_path / "masked", plan, weight=1, seed=None, adjust=adjust)
        total += decode(read_tensors(tmp_path / "masked")[1]["w"], plan.default)
    expected = aggregate(asked.privacy, 5, round_noise(asked, "site-0").scale)
    assert total.var() == pytest.approx(expected.variance, rel=0.1)


def test_noise_that_is_made_for_all_parameters_is_not_added_to_a_part() -> None:
    plan = RingPlan(participants=5, default=Ring(bits=64, fraction=30, bound=1.0))
    part = plan.model_copy(update={"chosen": Chosen(fraction=0.25, seed="34" * 32)})
    shuffled = terms(active=5, noise="oblivious-shuffled")
    drawn_noise(np.zeros(4, np.int64), plan)
    with pytest.raises(HanseError, match=r"ring\.chosen: 'a part of 0\.25 of the parameters'"):
        drawn_noise(np.zeros(4, np.int64), part)
    with pytest.raises(HanseError, match=r"ring\.chosen.*none: the shuffler chooses noise of all"):
        paired_noise(shuffled, "site-0", part, 4)
    with pytest.raises(HanseError, match=r"ring\.chosen.*takes off what others added"):
        correlated_noise(shuffled, "site-0", part, bytes(32))


@pytest.mark.parametrize("bits", [16, 32])
def test_rotated_updates_carry_shares_within_few_bits(bits: int, tmp_path: Path) -> None:
    asked = terms(active=5, mechanism="discrete_gaussian", noise=None, noise_multiplier=0.05)
    values = np.random.default_rng(3).standard_t(2, N).astype(np.float32)
    values *= 0.9 / np.linalg.norm(values)
    layout = Layout.of([Entry("w", "F32", (N,))])
    write_tensors(tmp_path / "plain", layout, {"w": values})
    plan = plan_for(asked, bits=bits, bound=0.05).model_copy(update={"rotation": "12" * 32})
    total = np.zeros(N, dtype=f"<u{bits // 8}")
    for site in range(5):
        adjust = site_noise(asked, f"site-{site}", plan, tmp_path / "plain", source=NoiseSource(bytes([site]) * 32))
        clipped = write_masked(tmp_path / "plain", tmp_path / "masked", plan, weight=1, seed=None, adjust=adjust)
        assert clipped.clipped == 0
        total += read_tensors(tmp_path / "masked")[1]["w"]
    summed, start = decode(total, plan.default), layout.data_start
    rotation = Rotation(bytes.fromhex("12" * 32))
    restored = np.concatenate([
        rotation.restore(summed[(first - start) // 4 : (last - start) // 4], first)
        for first, last in pieces(start, start + 4 * N)
    ])  # fmt: skip
    noise = restored - 5 * values.astype(np.float64)
    expected = aggregate(asked.privacy, 5, round_noise(asked, "site-0").scale)
    rounding = 5 * 2.0 ** (-2 * plan.default.fraction) / 4
    assert expected.variance * 0.95 < noise.var() < (expected.variance + rounding) * 1.05
    assert abs(noise.mean()) < 5 * math.sqrt(expected.variance / N)


def test_a_rotated_update_takes_no_laplace_noise(tmp_path: Path) -> None:
    plan = plan_for(terms()).model_copy(update={"rotation": "12" * 32})
    with pytest.raises(HanseError, match=r"ring\.rotation"):
        site_noise(terms(), "a", plan, tmp_path)


def test_two_calls_of_a_site_draw_different_noise() -> None:
    asked, zeros = terms(), np.zeros(100)
    plan = plan_for(asked)
    first, second = (site_noise(asked, "a", plan, Path())(zeros, 0) for _ in range(2))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(
    ("change", "named"),
    [({"largest_weight": 10}, "ring.largest_weight"), ({"stochastic": True}, "secure_aggregation.rounding")],
)
def test_plans_that_weigh_or_round_at_random_take_no_noise(change: dict[str, object], named: str) -> None:
    with pytest.raises(HanseError, match=named):
        site_noise(terms(), "a", plan_for(terms()).model_copy(update=change), Path())


def test_a_ring_without_room_for_the_noise_is_refused() -> None:
    plan = make_plan(SecureAggregation(mode="ring", bits=32), participants=10, weighting="uniform")
    with pytest.raises(HanseError, match="overflow 32 bits"):
        site_noise(terms(noise_multiplier=100.0), "a", plan, Path())
