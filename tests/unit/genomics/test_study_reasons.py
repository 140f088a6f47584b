"""Each reason for which a SNP has no result, with a SNP that has it; and that its neighbours have theirs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hanse_genomics.files.cohort import open_cohort
from hanse_genomics.reasons import Reason
from hanse_genomics.rehearsal import rehearse
from hanse_schemas.study import Study
from plink_files import write_plink

PEOPLE, COHORTS = 20, 3
EVERYBODY = PEOPLE * COHORTS
CASES = np.arange(EVERYBODY) % 2 == 1
GOOD = np.random.default_rng(1).binomial(2, 0.4, EVERYBODY)
A = np.random.default_rng(2).normal(size=EVERYBODY).round(4)
B = np.random.default_rng(3).integers(0, 3, EVERYBODY)
TRAIT = np.where(np.arange(EVERYBODY) < 10, 3.5, np.random.default_rng(4).normal(size=EVERYBODY).round(4))

SNPS: dict[str, np.ndarray] = {
    "good": GOOD,
    "nobody": np.full(EVERYBODY, -1),
    "monomorphic": np.zeros(EVERYBODY, dtype=int),
    "controls": np.where(CASES, -1, GOOD),
    "separating": np.where(CASES, 2, 0),
    "nearly": np.where(CASES, GOOD, 0),
    "covariate": B,
    "four": np.where(np.arange(EVERYBODY) < 4, [0, 1, 2, 1] * (EVERYBODY // 4), -1),
    "steady": np.where(np.arange(EVERYBODY) < 10, GOOD, -1),
    "rare": np.eye(1, EVERYBODY, 7, dtype=int)[0],
    "gaps": np.where(np.arange(EVERYBODY) % 3 == 0, -1, GOOD),
    "heterozygous": np.ones(EVERYBODY, dtype=int),
}


def reasons(study: Study, folder: Path) -> dict[str, Reason]:
    copies = np.array(list(SNPS.values()))
    listed = [("1", 10 + at, name, "A", "G") for at, name in enumerate(SNPS)]
    cohorts = {}
    for number in range(COHORTS):
        own = range(number * PEOPLE, (number + 1) * PEOPLE)
        people = [f"F I{at} 0 0 {1 + at // 2 % 2} {1 + int(CASES[at])}" for at in own]
        prefix = write_plink(folder / f"c{number}", copies[:, own], snps=listed, people=people)
        values = Path(f"{prefix}.values")
        values.write_text("FID IID A B TRAIT\n" + "".join(f"F I{at} {A[at]} {B[at]} {TRAIT[at]}\n" for at in own))
        cohorts[f"c{number}"] = open_cohort(prefix, study, values, values)
    results = rehearse(study, cohorts, folder / "state").results
    if study.test == "logistic" and study.firth == "never":
        assert not np.nanmax(results["iterations"], initial=0) > study.max_iterations
    found = {name: Reason(int(code)) for name, code in zip(SNPS, results["reason"], strict=True)}
    tested = np.array([code is Reason.TESTED for code in found.values()])
    assert (np.isfinite(results["p"]) == tested).all()
    assert (np.isfinite(results["log10_p"]) == tested).all()
    return found


@pytest.mark.parametrize("test", ["chi_square", "trend"])
def test_tests_of_counts_give_the_reason_for_each_snp_without_a_result(tmp_path: Path, test: str) -> None:
    found = reasons(Study.model_validate({"test": test}), tmp_path)
    assert found["good"] is found["separating"] is found["nearly"] is found["rare"] is Reason.TESTED
    assert found["controls"] is found["nobody"] is Reason.ONE_GROUP
    assert found["monomorphic"] is Reason.MONOMORPHIC


def test_linear_regression_gives_the_reason_for_each_snp_without_a_result(tmp_path: Path) -> None:
    found = reasons(Study(test="linear", phenotype="TRAIT", covariates=("A", "B")), tmp_path)
    assert found["good"] is found["controls"] is found["rare"] is found["gaps"] is Reason.TESTED
    assert found["monomorphic"] is found["nobody"] is found["heterozygous"] is Reason.MONOMORPHIC
    assert found["covariate"] is Reason.COLLINEAR
    assert found["four"] is Reason.FEW_SAMPLES
    assert found["steady"] is Reason.NO_VARIANCE


def test_logistic_regression_gives_the_reason_for_each_snp_without_a_result(tmp_path: Path) -> None:
    found = reasons(Study(test="logistic", covariates=("A", "B")), tmp_path)
    assert found["good"] is Reason.TESTED
    assert found["controls"] is found["nobody"] is Reason.ONE_GROUP
    assert found["monomorphic"] is found["heterozygous"] is Reason.MONOMORPHIC
    assert found["covariate"] is Reason.COLLINEAR
    assert found["four"] is Reason.FEW_SAMPLES
    assert found["separating"] is found["nearly"] is Reason.SEPARATION


def test_a_logistic_regression_that_needs_more_iterations_than_the_study_allows_says_so(tmp_path: Path) -> None:
    for most, expected in ((1, Reason.NOT_CONVERGED), (8, Reason.TESTED)):
        folder = tmp_path / str(most)
        folder.mkdir()
        found = reasons(Study(test="logistic", covariates=("A",), max_iterations=most), folder)
        assert found["good"] is expected
        assert found["monomorphic"] is Reason.MONOMORPHIC


def test_separated_snps_have_a_result_where_firths_correction_is_asked_for(tmp_path: Path) -> None:
    found = reasons(Study(test="logistic", covariates=("A",), firth="fallback"), tmp_path)
    assert found["good"] is found["separating"] is found["nearly"] is Reason.TESTED
    assert found["controls"] is Reason.ONE_GROUP


def test_quality_control_comes_before_every_other_reason(tmp_path: Path) -> None:
    quality = {"maf": 0.05, "missing": 0.2, "hardy_weinberg": 1e-6}
    found = reasons(Study.model_validate({"test": "chi_square", "quality": quality}), tmp_path)
    assert found["good"] is found["nearly"] is Reason.TESTED
    assert found["rare"] is found["monomorphic"] is Reason.MAF
    assert found["gaps"] is found["controls"] is found["nobody"] is Reason.MISSING
    assert found["heterozygous"] is Reason.HARDY_WEINBERG
