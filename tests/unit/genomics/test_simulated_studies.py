"""Simulated studies are what their plan says: sizes, odds ratios, missing values, and how their cohorts differ."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hanse_fabric.errors import HanseError
from hanse_genomics.simulation import Causal, CohortPlan, Covariate, StudyPlan, simulate

COHORTS = (CohortPlan("north", 301, 200), CohortPlan("east", 150, 352), CohortPlan("south", 249, 148))


def copies(prefix: Path) -> NDArray[np.float64]:
    """Copies of A1 by sample and SNP, NaN where missing, read bit by bit."""
    samples = len(prefix.with_suffix(".fam").read_text().splitlines())
    raw = np.frombuffer(prefix.with_suffix(".bed").read_bytes(), np.uint8)
    assert raw[:3].tolist() == [0x6C, 0x1B, 0x01]
    codes = raw[3:].reshape(-1, -(-samples // 4))[:, :, None] >> np.array([0, 2, 4, 6]) & 3
    return np.array([2, np.nan, 1, 0])[codes.reshape(len(codes), -1)[:, :samples]].T


def statuses(prefix: Path) -> NDArray[np.int64]:
    return np.array([int(line.split()[5]) for line in prefix.with_suffix(".fam").read_text().splitlines()])


def test_cohorts_have_their_cases_and_the_pool_is_all_of_them(tmp_path: Path) -> None:
    made = simulate(StudyPlan(600, COHORTS, missing=0.02), tmp_path)
    for cohort in COHORTS:
        status = statuses(made.cohorts[cohort.name])
        assert (int((status == 2).sum()), int((status == 1).sum())) == (cohort.cases, cohort.controls)
    assert made.pooled is not None
    together = np.concatenate([copies(made.cohorts[cohort.name]) for cohort in COHORTS])
    np.testing.assert_array_equal(together, copies(made.pooled))
    assert np.isnan(together).mean() == pytest.approx(0.02, abs=0.002)


def test_no_snp_of_a_simulated_study_is_left_out_for_its_strand(tmp_path: Path) -> None:
    made = simulate(StudyPlan(600, COHORTS), tmp_path)
    pairs = {frozenset(line.split()[4:]) for line in made.cohorts["north"].with_suffix(".bim").read_text().splitlines()}
    assert pairs == {frozenset(pair) for pair in ("AC", "AG", "CT", "GT")}


def test_the_same_plan_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    first, again, other = (
        simulate(StudyPlan(300, COHORTS, seed=seed), tmp_path / str(index))
        .cohorts["east"]
        .with_suffix(".bed")
        .read_bytes()
        for index, seed in enumerate((1, 1, 2))
    )
    assert first == again != other


def test_a_causal_snp_has_its_odds_ratio_and_its_neighbours_in_linkage_a_part_of_it(tmp_path: Path) -> None:
    cohorts = (CohortPlan("a", 10_000, 10_000),)
    plan = StudyPlan(60, cohorts, maf=(0.3, 0.3), causal=(Causal(30, odds_ratio=1.5),), linkage=0.8, block=20)
    prefix = simulate(plan, tmp_path, pooled_files=False).cohorts["a"]
    cases = statuses(prefix) == 2
    p, q = copies(prefix)[cases].mean(axis=0) / 2, copies(prefix)[~cases].mean(axis=0) / 2
    ratios = p * (1 - q) / (q * (1 - p))
    assert ratios[30] == pytest.approx(1.5, abs=0.08)
    assert 1.15 < ratios[31] < ratios[30]
    assert ratios[10] == pytest.approx(1, abs=0.08)


def test_covariates_differ_between_cohorts_only_as_they_are_sorted_and_tell_of_the_disease(tmp_path: Path) -> None:
    covariates = (Covariate("AGE", 60, 10, log_odds=0.5), Covariate("PACKS", 40, 20))
    cohorts = (CohortPlan("a", 3000, 3000), CohortPlan("b", 3000, 3000))
    made = simulate(StudyPlan(10, cohorts, covariates=covariates, sorted_by={"PACKS": 0.9}), tmp_path)
    tables = [np.loadtxt(made.cohorts[name].with_suffix(".cov"), skiprows=1, usecols=(2, 3)) for name in "ab"]
    means = np.array([table.mean(axis=0) for table in tables])
    assert abs(means[0, 0] - means[1, 0]) < 1.5
    assert means[1, 1] - means[0, 1] > 20
    lines = made.cohorts["a"].with_suffix(".pheno").read_text().splitlines()[1:]
    cases = {line.split()[1] for line in lines if line.split()[2] == "2"}
    rows = [line.split() for line in made.cohorts["a"].with_suffix(".cov").read_text().splitlines()[1:]]
    ages = [np.mean([float(row[2]) for row in rows if (row[1] in cases) is case]) for case in (True, False)]
    assert ages[0] - ages[1] == pytest.approx(5, abs=1.2)


def test_swapped_and_absent_snps_change_nothing_for_the_others(tmp_path: Path) -> None:
    made = simulate(StudyPlan(500, COHORTS, missing=0.05, swapped=0.3, absent=0.1), tmp_path)
    assert made.pooled is not None
    pooled, pool = copies(made.pooled), made.pooled.with_suffix(".bim").read_text().splitlines()
    place = {line.split()[1]: (index, line.split()[4]) for index, line in enumerate(pool)}
    ours, lines = copies(made.cohorts["north"]), made.cohorts["north"].with_suffix(".bim").read_text().splitlines()
    assert 400 < len(lines) < 490
    swaps = 0
    for column, line in enumerate(lines):
        index, first = place[line.split()[1]]
        swaps += line.split()[4] != first
        expected = pooled[:501, index] if line.split()[4] == first else 2 - pooled[:501, index]
        np.testing.assert_array_equal(ours[:, column], expected)
    assert swaps > 100


def test_populations_differ_by_their_fst(tmp_path: Path) -> None:
    plan = StudyPlan(2000, (CohortPlan("a", 1000, 1000),), maf=(0.3, 0.3), populations=2, fst=0.05, monomorphic=0.1)
    dosages = copies(simulate(plan, tmp_path, pooled_files=False).cohorts["a"]) / 2
    p = np.stack([dosages[:1000].mean(axis=0), dosages[1000:].mean(axis=0)])
    varied = p.max(axis=0) > 0
    assert (~varied).mean() == pytest.approx(0.1, abs=0.03)
    assert ((p[0] - 0.3) ** 2)[varied].mean() == pytest.approx(0.05 * 0.3 * 0.7, rel=0.15)


def test_an_impossible_simulation_is_refused_by_field() -> None:
    with pytest.raises(HanseError, match=r"missing=1\.5.*no covariate AGE.*no SNP 7 of 5"):
        StudyPlan(5, COHORTS, missing=1.5, sorted_by={"AGE": 1.0}, causal=(Causal(7),))
