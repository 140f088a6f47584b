"""What components are for: a study of three populations finds what is not there, and with components it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from hanse_fabric.study import Structure, Study
from hanse_genomics.files import open_cohort
from hanse_genomics.rehearsal import Rehearsed, rehearse
from hanse_genomics.simulation import CohortPlan, Plan, Simulated, simulate

# Who is in which population decides about the trait and about being a case; no SNP does. Cohorts are uneven in both.
PLAN = Plan(
    snps=2500, cohorts=(CohortPlan("a", 160, 60), CohortPlan("b", 60, 140), CohortPlan("c", 40, 200)), seed=5,
    maf=(0.05, 0.5), populations=3, fst=0.03, case_odds=3.0, trait_shift=1.0, missing=0.01,
)  # fmt: skip


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    return simulate(PLAN, tmp_path_factory.mktemp("inflated"), pooled_files=False)


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
