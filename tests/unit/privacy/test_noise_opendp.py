"""OpenDP (https://opendp.org), a library of other people's, as an oracle: it draws the same laws, and charges alike.

Its samplers are exact, too (Canonne, Kamath, Steinke 2020). What is drawn here comes from a fixed key, and from OpenDP
freshly: so a test fails by chance once in 10^6 runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest
from scipy import stats

from hanse_privacy.accounting.accountant import make_accountant
from hanse_privacy.accounting.events import ReleaseEvent, gaussian
from hanse_privacy.correlated.centred import centred_gaussian
from hanse_privacy.noise.exact import Integers, discrete_gaussian
from hanse_privacy.noise.gaussian import concentrated_epsilon
from hanse_privacy.noise.polya import polya_difference
from hanse_privacy.noise.source import NoiseSource

COUNT, ALPHA, EXPECTED = 60_000, 1e-6, 20
DELTAS = (1e-5, 1e-8)
Draw = Callable[[], Integers]


@pytest.fixture(autouse=True)
def contributed() -> None:
    """OpenDP wants to be told that its parts without a proof by a committee may be used."""
    dp.enable_features("contrib")


def source() -> NoiseSource:
    return NoiseSource(bytes(range(32)))


def measured(make: Any, distance: Any, scale: float) -> Any:
    return make(dp.vector_domain(dp.atom_domain(T="i64")), distance, scale=scale)


@cache
def of_opendp(law: str, scale: float) -> Integers:
    """Drawn once: each test that asks for it holds something else against it."""
    if law == "gaussian":
        made = measured(dp.m.make_gaussian, dp.l2_distance(T="f64"), scale)
    else:
        made = measured(dp.m.make_laplace, dp.l1_distance(T="i64"), scale)
    return np.array(made([0] * COUNT), dtype=np.int64)


def alike(one: Integers, other: Integers) -> float:
    """The chi-square test's p-value of two samples of integers: of classes with some in each."""
    low, high = min(one.min(), other.min()), max(one.max(), other.max())
    counts = np.array([np.bincount(drawn - low, minlength=high - low + 1) for drawn in (one, other)])
    classes: list[Integers] = []
    pending = np.zeros(2, dtype=np.int64)
    for column in counts.T:
        pending = pending + column
        if pending.sum() >= EXPECTED:
            classes.append(pending)
            pending = np.zeros(2, dtype=np.int64)
    classes[-1] = classes[-1] + pending
    return float(stats.chi2_contingency(np.array(classes).T).pvalue)


LAWS: dict[str, tuple[str, float, Draw]] = {
    "a discrete Gaussian": ("gaussian", 7.0, lambda: discrete_gaussian(7, COUNT, source())),
    "a wide discrete Gaussian": ("gaussian", 300.0, lambda: discrete_gaussian(300, COUNT, source()) // 16),
    "a draw around a centre, of correlated noise": (
        "gaussian", 7.0, lambda: centred_gaussian(7, np.zeros(COUNT, dtype=np.int64), source()),
    ),
    "a discrete Laplace": ("laplace", 6.0, lambda: polya_difference(6, 1, COUNT, source())),
    "a discrete Laplace of four shares": (
        "laplace", 6.0, lambda: sum((polya_difference(6, 4, COUNT, NoiseSource(bytes([at] * 32))) for at in range(4)),
                                    start=np.zeros(COUNT, dtype=np.int64)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAWS)
def test_what_is_drawn_has_opendps_law(name: str) -> None:
    law, scale, draw = LAWS[name]
    expected = of_opendp(law, scale)
    assert alike(draw(), expected // 16 if scale == 300 else expected) > ALPHA


@pytest.mark.parametrize(("law", "scale"), [("gaussian", 7.5), ("laplace", 6.7)])
def test_control_noise_of_another_scale_is_told_from_it(law: str, scale: float) -> None:
    draw = LAWS[{"gaussian": "a discrete Gaussian", "laplace": "a discrete Laplace"}[law]][2]
    assert alike(draw(), of_opendp(law, scale)) < ALPHA


def test_control_another_law_of_the_same_variance_is_told_from_it() -> None:
    q = math.exp(-1 / 5)
    assert math.sqrt(2 * q) / (1 - q) == pytest.approx(7.0, rel=0.01)
    assert alike(polya_difference(5, 1, COUNT, source()), of_opendp("gaussian", 7.0)) < ALPHA


@pytest.mark.parametrize("scale", [2.0, 5.0, 20.0])
@pytest.mark.parametrize("rounds", [1, 12])
def test_discrete_gaussian_noise_costs_the_rho_of_opendp_and_by_pld_less(scale: float, rounds: int) -> None:
    one = measured(dp.m.make_gaussian, dp.l2_distance(T="f64"), scale)
    whole = dp.c.make_composition([one] * rounds)
    rho = whole.map(1.0)
    assert rho == pytest.approx(rounds / (2 * scale**2))
    for delta in DELTAS:
        theirs = dp.c.make_zCDP_to_approxDP(whole).map(1.0).epsilon(delta)
        assert theirs <= concentrated_epsilon(rho, delta) <= theirs * (1 + 1e-4)
        by = {}
        for accountant in ("rdp", "pld"):
            made = make_accountant(accountant)
            made.compose(gaussian(scale), rounds)
            by[accountant] = made.epsilon(delta)
        assert theirs * (1 - 1e-6) <= by["rdp"] <= theirs * 1.01
        assert by["pld"] < theirs


@pytest.mark.parametrize("scale", [2, 6, 50])
def test_discrete_laplace_noise_costs_the_epsilon_of_opendp(scale: int) -> None:
    theirs = measured(dp.m.make_laplace, dp.l1_distance(T="i64"), float(scale)).map(1)
    made = make_accountant()
    made.compose(ReleaseEvent("pure", 1 / scale))
    assert made.epsilon(1e-12) == pytest.approx(theirs, rel=1e-6)
