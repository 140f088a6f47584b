"""What components are for: a study of three populations finds what is not there, and with components it does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hanse_genomics.files import open_cohort
from hanse_genomics.genotypes import dosages, missing
from hanse_genomics.rehearsal import Rehearsed, rehearse
from hanse_genomics.simulation import CohortPlan, Simulated, StudyPlan, simulate
from hanse_schemas.study import Structure, Study

# Who is in which population decides about the trait and about being a case; no SNP does. Cohorts are uneven in both.
PLAN = StudyPlan(
    snps=2500, cohorts=(CohortPlan("a", 160, 60), CohortPlan("b", 60, 140), CohortPlan("c", 40, 200)), seed=5,
    maf=(0.05, 0.5), populations=3, fst=0.03, case_odds=3.0, trait_shift=1.0, missing=0.01,
)  # fmt: skip


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    return simulate(PLAN, tmp_path_factory.mktemp("inflated"))


def run(simulated: Simulated, state: Path, test: str, phenotype: str, components: int) -> Rehearsed:
    structure = Structure(components=components, tolerance=1e-6)
    study = Study(test=test, phenotype=phenotype, structure=structure)  # type: ignore[arg-type]
    cohorts = {
        name: open_cohort(prefix, study, phenotypes=prefix.with_name(f"{name}.pheno"))
        for name, prefix in simulated.cohorts.items()
    }
    return rehearse(study, cohorts, state)


@pytest.mark.parametrize(("test", "phenotype"), [("linear", "TRAIT"), ("logistic", "CASE")])
def test_two_components_remove_the_inflation_of_three_populations(
    simulated: Simulated, tmp_path: Path, test: str, phenotype: str
) -> None:
    without = run(simulated, tmp_path / "without", test, phenotype, 0)
    adjusted = run(simulated, tmp_path / "with", test, phenotype, 2)
    assert without.summary["lambda"] > 1.5
    # Of 2,500 independent tests the median of chi-square varies by 4 %.
    assert 0.85 < adjusted.summary["lambda"] < 1.15
    assert adjusted.summary["covariates"] == ["PC1", "PC2"]
    assert adjusted.summary["structure"]["converged"]


def test_regressions_on_components_are_those_on_the_pools_own_singular_vectors(
    simulated: Simulated, tmp_path: Path
) -> None:
    """A SNP's coefficient does not depend on how the components' subspace is spanned, or their signs."""
    assert simulated.pooled is not None
    # Without pruning (r2 1) and without rare SNPs, every SNP is in the panel.
    structure = Structure(components=2, maf=0.0, r2=1.0)
    study = Study(test="linear", phenotype="TRAIT", structure=structure)
    cohorts = {
        name: open_cohort(prefix, study, phenotypes=prefix.with_name(f"{name}.pheno"))
        for name, prefix in simulated.cohorts.items()
    }
    found = rehearse(study, cohorts, tmp_path).results
    pool = open_cohort(simulated.pooled, study, phenotypes=simulated.pooled.with_name("pooled.pheno"))
    packed = pool.packed(slice(0, len(pool.snps)))
    copies = dosages(packed, pool.samples).copy()
    copies[missing(packed, pool.samples)] = np.nan
    p = np.nanmean(copies, axis=1, keepdims=True) / 2
    x = np.nan_to_num((copies - 2 * p) / np.sqrt(2 * p * (1 - p)))
    components = np.linalg.svd(x, full_matrices=False)[2][:2].T
    for snp in range(0, len(copies), 100):
        here = ~np.isnan(copies[snp])
        design = np.column_stack([copies[snp], np.ones(pool.samples), components])[here]
        y = pool.phenotype[here]
        beta, rest = np.linalg.lstsq(design, y, rcond=None)[:2]
        se = np.sqrt(rest[0] / (len(y) - 4) * np.linalg.inv(design.T @ design)[0, 0])
        assert abs(found["beta"][snp]) == pytest.approx(abs(beta[0]), rel=1e-7)
        assert found["se"][snp] == pytest.approx(se, rel=1e-7)
