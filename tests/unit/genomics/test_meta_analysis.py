"""Meta-analysis: by hand, and against statsmodels."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm
from statsmodels.stats.meta_analysis import combine_effects

from hanse_fabric.errors import HanseError
from hanse_genomics.compare import meta_analysis


def test_a_meta_analysis_of_two_cohorts_gives_the_numbers_worked_out_by_hand() -> None:
    # weights 1/0.01 = 100 and 1/0.04 = 25; beta = (100*0.5 + 25*0.1)/125 = 0.42; Q = 100*0.08^2 + 25*0.32^2 = 3.2
    found = meta_analysis(np.array([[0.5], [0.1]]), np.array([[0.1], [0.2]]))
    assert found.fixed.beta[0] == pytest.approx(0.42)
    assert found.fixed.se[0] == pytest.approx(125**-0.5)
    assert found.q[0] == pytest.approx(3.2)
    assert found.i2[0] == pytest.approx(2.2 / 3.2)
    # tau2 = (3.2 - 1) / (125 - (100^2 + 25^2)/125) = 2.2 / 40
    assert found.tau2[0] == pytest.approx(0.055)
    weights = np.array([1 / 0.065, 1 / 0.095])
    assert found.random.beta[0] == pytest.approx((weights @ [0.5, 0.1]) / weights.sum())


def test_a_meta_analysis_gives_the_numbers_of_statsmodels() -> None:
    rng = np.random.default_rng(3)
    betas, ses = rng.normal(0.2, 0.4, (4, 25)), rng.uniform(0.05, 0.3, (4, 25))
    found = meta_analysis(betas, ses)
    for at in range(betas.shape[1]):
        other = combine_effects(betas[:, at], ses[:, at] ** 2, method_re="chi2")
        assert found.fixed.beta[at] == pytest.approx(other.mean_effect_fe, rel=1e-10)
        assert found.fixed.se[at] == pytest.approx(other.sd_eff_w_fe, rel=1e-10)
        if other.tau2 < 0:  # statsmodels goes on with a negative variance
            assert found.tau2[at] == 0.0 == found.i2[at]
            assert found.random.beta[at] == pytest.approx(found.fixed.beta[at])
            continue
        assert found.random.beta[at] == pytest.approx(other.mean_effect_re, rel=1e-10)
        assert found.random.se[at] == pytest.approx(other.sd_eff_w_re, rel=1e-10)
        assert found.q[at] == pytest.approx(other.q, rel=1e-10)
        assert found.tau2[at] == pytest.approx(other.tau2, rel=1e-9)
        assert found.i2[at] == pytest.approx(other.i2, rel=1e-9)


def test_a_cohort_without_an_effect_does_not_count() -> None:
    betas = np.array([[0.5, np.nan, np.nan], [0.1, 0.3, np.nan], [9.0, 9.0, np.inf]])
    ses = np.array([[0.1, 0.1, 0.1], [0.2, 0.1, 0.1], [np.inf, 0.0, 0.1]])
    found = meta_analysis(betas, ses)
    assert found.cohorts.tolist() == [2, 1, 0]
    assert found.fixed.beta[0] == pytest.approx(0.42)
    assert found.fixed.beta[1] == pytest.approx(0.3) == found.random.beta[1]
    assert found.i2[1] == 0.0
    for values in (found.fixed.p, found.random.beta, found.q, found.i2, found.tau2):
        assert np.isnan(values[2])


def test_the_logarithm_of_p_goes_on_where_p_underflows() -> None:
    found = meta_analysis(np.array([[1.0, 60.0]]), np.array([[1.0, 1.0]])).fixed
    assert found.log10_p[0] == pytest.approx(np.log10(found.p[0]), rel=1e-12)
    assert found.p[1] == 0.0
    assert found.log10_p[1] == pytest.approx((norm.logsf(60.0) + np.log(2)) / np.log(10), rel=1e-12)


def test_effects_without_standard_errors_of_the_same_shape_are_refused() -> None:
    with pytest.raises(HanseError, match=r"ses.*\(2, 3\)"):
        meta_analysis(np.zeros((2, 3)), np.zeros((2, 2)))
