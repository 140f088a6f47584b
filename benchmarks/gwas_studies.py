"""The simulated studies of the benchmarks, by size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hanse_genomics.simulation import Causal, CohortPlan, Covariate, StudyPlan

COVARIATES = (
    Covariate("AGE", 60, 10, log_odds=0.3, trait=0.2),
    Covariate("BMI", 26, 4, log_odds=0.2, trait=0.1),
    Covariate("SMOKE", 0.5, 0.3, log_odds=0.4, trait=-0.3),
    Covariate("PACKYEARS", 40, 22, log_odds=0.5, trait=-0.4),
)
NAMES = [covariate.name for covariate in COVARIATES]
PHENOTYPES = {"chi_square": "CASE", "linear": "TRAIT", "logistic": "CASE"}


@dataclass(frozen=True, slots=True)
class Size:
    """SNPs, and cases and controls of each cohort."""

    snps: int
    cohorts: tuple[tuple[int, int], ...]

    @property
    def samples(self) -> int:
        return sum(map(sum, self.cohorts))


SIZES = {
    "small": Size(4_000, ((170, 130), (100, 150), (120, 110))),
    "full": Size(100_000, ((1000, 800), (700, 900), (900, 700))),
    # Table S2, scenario II of COPDGene, with the number of common SNPs rounded.
    "copdgene": Size(580_000, ((737, 1044), (937, 844), (1137, 644))),
}


def plan(size: Size, *, missing: float = 0.01) -> StudyPlan:
    """Uneven case shares, ten causal SNPs, 1 % of genotypes missing, at each site a fifth of the alleles swapped."""
    causal = tuple(Causal((2 * at + 1) * size.snps // 20, odds_ratio=1.35, trait=0.15) for at in range(10))
    cohorts = tuple(CohortPlan(f"cohort{at + 1}", *counts) for at, counts in enumerate(size.cohorts))
    return StudyPlan(size.snps, cohorts, covariates=COVARIATES, causal=causal, missing=missing, swapped=0.2)


def study(test: str) -> dict[str, Any]:
    """The job's section."""
    covariates = [] if test == "chi_square" else NAMES
    return {"test": test, "phenotype": PHENOTYPES[test], "covariates": covariates}
