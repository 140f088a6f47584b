"""The statistics themselves: against statsmodels, mpmath, brute force and small examples worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import mpmath
import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st

from hanse_genomics import wide
from hanse_genomics.arrays import Arrays, Floats
from hanse_genomics.files import text
from hanse_genomics.reasons import Reason
from hanse_genomics.statistics import allelic, hardy_weinberg, symmetric, tails
from hanse_schemas.study import Study
from plink_files import write_plink
from plink_oracle import Pool, a1, federated, make_pool

COVARIATES = ("AGE", "DOSE", "COUNT")
SNP = [0, 1, 2, 0, 1, 2, 1, 0, 2, 1]
AGE = [30, 45, 50, 28, 61, 39, 55, 33, 47, 52]
QUANTITY = [1.1, 1.9, 2.7, 0.8, 2.2, 2.4, 2.0, 1.0, 2.9, 1.7]
STATUS = [0, 0, 1, 0, 1, 0, 1, 1, 1, 0]


def ten_people(folder: Path) -> dict[str, Path]:
    """The golden vectors' ten people in three cohorts. A2 is the copies' allele where it is the rarer one."""
    cohorts = {}
    for name, own in {"a": range(4), "b": range(4, 7), "c": range(7, 10)}.items():
        copies = np.array([[SNP[at] for at in own]])
        people = [f"F{at} I{at} 0 0 1 {STATUS[at] + 1}" for at in own]
        prefix = write_plink(folder / name, copies, people=people)
        lines = [f"F{at} I{at} {AGE[at]}" for at in own]
        Path(f"{prefix}.cov").write_text("\n".join(["FID IID AGE", *lines]) + "\n")
        lines = [f"F{at} I{at} {STATUS[at] + 1} {QUANTITY[at]}" for at in own]
        Path(f"{prefix}.pheno").write_text("\n".join(["FID IID CASE Y", *lines]) + "\n")
        cohorts[name] = prefix
    return cohorts


def test_the_allelic_test_gives_the_golden_vector() -> None:
    made = allelic.chi_square(np.array([[10, 20, 5, 25]]))
    p, log10_p = tails.chi_square(made.chisq)
    assert made.odds_ratio[0] == pytest.approx(2.5, rel=1e-12)
    assert made.chisq[0] == pytest.approx(2.2222222222, rel=1e-9)
    assert p[0] == pytest.approx(0.1360371281, rel=1e-9)
    assert log10_p[0] == pytest.approx(math.log10(p[0]), rel=1e-12)
    assert (made.f_a[0], made.f_u[0]) == pytest.approx((1 / 3, 1 / 6))


def test_linear_regression_gives_the_golden_vector(tmp_path: Path) -> None:
    study = Study(test="linear", phenotype="Y", covariates=("AGE",), few_samples=True)
    results = federated(study, ten_people(tmp_path), tmp_path / "state").results
    sign = 1 if a1(results) == ["A"] else -1
    assert sign * results["beta"][0] == pytest.approx(0.7505445227, rel=1e-8)
    assert results["se"][0] == pytest.approx(0.0843770902, rel=1e-8)
    assert sign * results["stat"][0] == pytest.approx(8.8951221363, rel=1e-8)


def test_logistic_regression_gives_the_golden_vector(tmp_path: Path) -> None:
    study = Study(test="logistic", phenotype="CASE", covariates=("AGE",), few_samples=True)
    results = federated(study, ten_people(tmp_path), tmp_path / "state").results
    sign = 1 if a1(results) == ["A"] else -1
    assert sign * results["beta"][0] == pytest.approx(-0.0648713343, rel=1e-8)
    assert results["se"][0] == pytest.approx(1.0987393324, rel=1e-8)
    assert results["p"][0] == pytest.approx(0.9529189695, rel=1e-8)


def read(path: Path, column: str, people: list[str]) -> Floats:
    head, *lines = [line.split() for line in path.read_text().splitlines()]
    values = {tuple(line[:2]): float(line[head.index(column)]) for line in lines}
    listed = np.array([values[tuple(person.split()[:2])] for person in people])
    return np.where(listed == -9, np.nan, listed)


class Pooled:
    """What a regression over the pool has of each SNP."""

    def __init__(self, pool: Pool, phenotype: str, covariates: tuple[str, ...]) -> None:
        self._copies = pool.copies
        y = read(Path(f"{pool.prefix}.pheno"), phenotype, pool.people)
        y[[person.split()[4] == "0" for person in pool.people]] = np.nan
        columns = [read(Path(f"{pool.prefix}.cov"), name, pool.people) for name in covariates]
        self._y, self._z = y, np.column_stack([np.ones(len(y)), *columns])
        self._row = {snp[2]: at for at, snp in enumerate(pool.snps)}

    def columns(self, results: Arrays, at: int) -> tuple[Floats, Floats]:
        """y and X, the SNP's copies of A1 last."""
        copies = self._copies[self._row[text.unpack(results["name"])[at]]]
        here = (copies >= 0) & ~np.isnan(self._y) & ~np.isnan(self._z).any(axis=1)
        of_a1 = copies[here] if a1(results)[at] == "A" else 2 - copies[here]
        z = self._z[here]
        spread = np.where(z.std(axis=0) > 0, z.std(axis=0), 1)
        # statsmodels solves in the scale that it is given; the SNP's coefficient does not depend on the others'.
        z = (z - np.where(z.std(axis=0) > 0, z.mean(axis=0), 0)) / spread
        return self._y[here], np.column_stack([z, of_a1])


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    return make_pool(tmp_path_factory.mktemp("pool"), snps=120, samples=400, seed=4)


def test_linear_regression_is_statsmodels_within_1e_8(pool: Pool, tmp_path: Path) -> None:
    study = Study(test="linear", phenotype="TRAIT", covariates=COVARIATES)
    results = federated(study, pool.cohorts(tmp_path, 4), tmp_path / "state").results
    pooled = Pooled(pool, "TRAIT", COVARIATES)
    tested = np.flatnonzero(results["reason"] == Reason.TESTED)
    assert len(tested) > 90
    for at in tested.tolist():
        fit = sm.OLS(*pooled.columns(results, at)).fit()
        for ours, theirs in (("beta", fit.params), ("se", fit.bse), ("stat", fit.tvalues), ("p", fit.pvalues)):
            assert results[ours][at] == pytest.approx(theirs[-1], rel=1e-8, abs=1e-12)


def test_logistic_regression_is_statsmodels_within_1e_8(pool: Pool, tmp_path: Path) -> None:
    study = Study(test="logistic", phenotype="CASE", covariates=COVARIATES)
    results = federated(study, pool.cohorts(tmp_path, 4), tmp_path / "state").results
    pooled = Pooled(pool, "CASE", COVARIATES)
    tested = np.flatnonzero(results["reason"] == Reason.TESTED)
    assert len(tested) > 80
    for at in tested.tolist():
        y, x = pooled.columns(results, at)
        fit = sm.GLM(y - 1, x, family=sm.families.Binomial()).fit(tol=1e-13, maxiter=100)
        for ours, theirs in (("beta", fit.params), ("se", fit.bse), ("stat", fit.tvalues), ("p", fit.pvalues)):
            assert results[ours][at] == pytest.approx(theirs[-1], rel=1e-8, abs=1e-11)


def test_a_snp_whose_p_is_below_every_double_keeps_its_logarithm(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    copies = rng.binomial(2, 0.4, (1, 900))
    trait = copies[0] + rng.normal(0, 0.05, 900)
    cohorts = {}
    for number in range(3):
        own = range(300 * number, 300 * number + 300)
        people = [f"F{at} I{at} 0 0 {1 + at % 2} {trait[at]:.6f}" for at in own]
        cohorts[f"c{number}"] = write_plink(tmp_path / f"c{number}", copies[:, own.start : own.stop], people=people)
    results = federated(Study(test="linear"), cohorts, tmp_path / "state").results
    fit = sm.OLS(np.round(trait, 6), np.column_stack([np.ones(900), copies[0]])).fit()
    t = float(fit.tvalues[-1])
    with mpmath.workdps(60):
        expected = mpmath.log10(mpmath.betainc(449, 0.5, 0, 898 / (898 + mpmath.mpf(t) ** 2), regularized=True))
    assert abs(results["stat"][0]) == pytest.approx(t, rel=1e-8)
    assert results["p"][0] == 0.0
    assert results["log10_p"][0] == pytest.approx(float(expected), rel=1e-8)
    assert results["log10_p"][0] < -700


def firth(y: Floats, x: Floats) -> tuple[float, float]:
    """Coefficient and standard error of the last column, by the textbook: damped Newton on the modified score."""
    beta = np.zeros(x.shape[1])
    for _ in range(3000):
        p = 1 / (1 + np.exp(-x @ beta))
        w = p * (1 - p)
        inverse = np.linalg.inv((x * w[:, None]).T @ x)
        leverage = w * np.einsum("ij,jk,ik->i", x, inverse, x)
        step = inverse @ (x.T @ (y - p + leverage * (0.5 - p)))
        if np.abs(step).max() < 1e-12:
            break
        beta = beta + 0.5 * step
    return float(beta[-1]), float(np.sqrt(inverse[-1, -1]))


@pytest.mark.parametrize("mode", ["fallback", "always"])
def test_firths_regression_is_the_textbooks(pool: Pool, tmp_path: Path, mode: str) -> None:
    study = Study.model_validate({"test": "logistic", "phenotype": "CASE", "covariates": ["AGE"], "firth": mode})
    results = federated(study, pool.cohorts(tmp_path, 3), tmp_path / "state").results
    used = np.flatnonzero(results["firth"])
    assert set(results["reason"].tolist()) <= {Reason.TESTED, Reason.MONOMORPHIC}
    assert len(used) > (100 if mode == "always" else 1)
    pooled = Pooled(pool, "CASE", ("AGE",))
    for at in used[:12].tolist():
        y, x = pooled.columns(results, at)
        beta, se = firth(y - 1, x)
        assert results["beta"][at] == pytest.approx(beta, abs=1e-7 * se)
        assert results["se"][at] == pytest.approx(se, rel=1e-7)


def exact_by_enumeration(heterozygous: int, one: int, other: int) -> float:
    """Hardy-Weinberg's exact p, of every possible number of heterozygotes in rational arithmetic."""
    n = heterozygous + one + other
    rare = heterozygous + 2 * min(one, other)

    def ways(h: int) -> int:
        few = (rare - h) // 2
        return math.factorial(n) // (math.factorial(h) * math.factorial(few) * math.factorial(n - h - few)) * 2**h

    possible = [ways(h) for h in range(rare % 2, rare + 1, 2)]
    return sum(number for number in possible if number <= ways(heterozygous)) / sum(possible)


@given(st.lists(st.tuples(*[st.integers(0, 60)] * 3), min_size=1, max_size=30))
def test_hardy_weinberg_is_what_enumeration_gives(tables: list[tuple[int, int, int]]) -> None:
    counts = np.array(tables, dtype=np.int64)
    made = hardy_weinberg.exact(counts[:, 0], counts[:, 1], counts[:, 2])
    for table, p in zip(tables, made.tolist(), strict=True):
        if sum(table):
            assert p == pytest.approx(exact_by_enumeration(*table), rel=1e-9)
        else:
            assert math.isnan(p)


def test_hardy_weinberg_stays_right_far_in_the_tail() -> None:
    p = hardy_weinberg.exact(np.array([0, 600]), np.array([300, 0]), np.array([300, 0]))
    assert p.tolist() == pytest.approx([exact_by_enumeration(0, 300, 300), exact_by_enumeration(600, 0, 0)], rel=1e-8)


@pytest.mark.parametrize(("t", "df"), [(0.3, 7), (9.0, 40), (40.0, 5000), (-95.0, 800), (1e-9, 3), (700.0, 2500)])
def test_p_values_of_t_are_right_far_below_the_smallest_double(t: float, df: float) -> None:
    p, log10_p = tails.student(np.array([t]), np.array([df]))
    with mpmath.workdps(60):
        half = mpmath.betainc(df / 2, 0.5, 0, df / (df + mpmath.mpf(t) ** 2), regularized=True)
        expected = mpmath.log10(half)
    assert log10_p[0] == pytest.approx(float(expected), rel=1e-9, abs=1e-12)
    assert p[0] == pytest.approx(float(half), rel=1e-6, abs=0 if float(expected) > -307 else 1e-307)


@pytest.mark.parametrize("z", [0.01, 2.0, 9.0, 30.0, 200.0])
def test_p_values_of_normal_statistics_are_survival_functions(z: float) -> None:
    with mpmath.workdps(60):
        exact = mpmath.erfc(mpmath.mpf(z) / mpmath.sqrt(2))
        expected = float(mpmath.log10(exact))
    for p, log10_p in (tails.normal(np.array([z])), tails.chi_square(np.array([z * z]))):
        assert log10_p[0] == pytest.approx(expected, rel=1e-12, abs=1e-14)
        assert p[0] == pytest.approx(float(exact), rel=1e-10)


def test_the_trend_test_is_the_score_test_of_logistic_regression() -> None:
    rng = np.random.default_rng(5)
    cases, controls = rng.integers(1, 90, (20, 3)), rng.integers(1, 90, (20, 3))
    made = allelic.trend(cases, controls)
    for at in range(20):
        copies = np.repeat([0, 1, 2, 0, 1, 2], [*cases[at], *controls[at]])
        status = np.repeat([1.0, 0.0], [cases[at].sum(), controls[at].sum()])
        # The trend test is N times the squared correlation.
        expected = len(copies) * np.corrcoef(copies, status)[0, 1] ** 2
        assert made[at] == pytest.approx(expected, rel=1e-10)


@given(st.lists(st.floats(-1e30, 1e30, allow_subnormal=False), min_size=1, max_size=20))
def test_wide_sums_are_exact_whatever_the_scale(values: list[float]) -> None:
    total = sum(wide.split([value]) for value in values)
    assert isinstance(total, np.ndarray)
    exact = math.fsum(values)
    assert wide.join(total)[0] == pytest.approx(exact, rel=1e-15, abs=len(values) * 2.0**-120)


def test_factors_tell_which_matrices_can_be_inverted() -> None:
    rng = np.random.default_rng(1)
    columns = rng.normal(size=(30, 12, 4))
    columns[::3, :, 3] = columns[::3, :, 0] - 2 * columns[::3, :, 1]
    matrices = np.einsum("sij,sik->sjk", columns, columns)
    factors = symmetric.cholesky(matrices, 1e-10)
    assert factors.definite.tolist() == [at % 3 != 0 for at in range(30)]
    good = factors.definite
    assert np.allclose(factors.inverse()[good], np.linalg.inv(matrices[good]))
    assert np.array_equal(symmetric.unpacked(symmetric.packed(matrices), 4), matrices)
