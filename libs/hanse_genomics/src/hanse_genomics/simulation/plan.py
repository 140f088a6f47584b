"""What a simulated study is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hanse_fabric.errors import ErrorCode, HanseError


@dataclass(frozen=True, slots=True)
class CohortPlan:
    """One cohort, in numbers of samples."""

    name: str
    cases: int
    controls: int

    @property
    def samples(self) -> int:
        return self.cases + self.controls


@dataclass(frozen=True, slots=True)
class Covariate:
    """A normally distributed covariate.

    Attributes:
        name: its column.
        mean, sd: among the controls.
        log_odds: of being a case, per standard deviation; the cases' mean is moved by it, so that the logistic model
            holds exactly (Prentice and Pyke 1979).
        trait: effect on the quantitative trait per standard deviation.
    """

    name: str
    mean: float = 0.0
    sd: float = 1.0
    log_odds: float = 0.0
    trait: float = 0.0


@dataclass(frozen=True, slots=True)
class Causal:
    """A SNP that matters.

    Attributes:
        snp: its index.
        odds_ratio: per copy of A1.
        trait: effect on the quantitative trait per copy of A1.
        maf: its allele's frequency among the controls; None: as the other SNPs' is drawn.
    """

    snp: int
    odds_ratio: float = 1.0
    trait: float = 0.0
    maf: float | None = None


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """A study: a pool of people, cut into cohorts.

    Attributes:
        snps: how many.
        cohorts: in the order in which the pooled files have them.
        seed: the same plan gives the same bytes.
        maf: bounds of the minor allele frequency; uniform in its logarithm, so rare SNPs are frequent.
        monomorphic: share of SNPs without a second allele among the samples.
        causal: SNPs that matter.
        covariates: of the .cov files.
        missing: share of missing genotypes, spread evenly.
        missing_phenotypes, missing_covariates: shares of samples without them.
        sorted_by: by covariate: how strongly (0 to 1) who is in which cohort follows it: 0 not at all, 1 the first
            cohort has the smallest values. The pool stays the same.
        linkage: share of the samples in whom a SNP repeats its left neighbour's quantile, within blocks of
            `block` SNPs; 0: all SNPs are independent.
        populations: ancestral populations by the Balding-Nichols model with `fst`; `case_odds` is the odds ratio of
            disease between one population and the next, `trait_shift` the trait's difference.
        swapped: share of SNPs whose A1 and A2 a cohort's .bim has the other way round, drawn for each cohort.
        absent: share of SNPs that a cohort lacks, drawn for each cohort.
    """

    snps: int
    cohorts: tuple[CohortPlan, ...]
    seed: int = 1
    maf: tuple[float, float] = (0.05, 0.5)
    monomorphic: float = 0.0
    causal: tuple[Causal, ...] = ()
    covariates: tuple[Covariate, ...] = ()
    missing: float = 0.0
    missing_phenotypes: float = 0.0
    missing_covariates: float = 0.0
    sorted_by: Mapping[str, float] = field(default_factory=dict)
    linkage: float = 0.0
    block: int = 20
    populations: int = 1
    fst: float = 0.01
    case_odds: float = 1.0
    trait_shift: float = 0.0
    swapped: float = 0.0
    absent: float = 0.0

    def __post_init__(self) -> None:
        """Check what else would fail far from its cause.

        Raises:
            HanseError: INVALID_INPUT, naming the field.
        """
        low, high = self.maf
        shares = ("monomorphic", "missing", "missing_phenotypes", "missing_covariates", "linkage", "swapped", "absent")
        wrong = [
            f"{name}={getattr(self, name)}: expected 0 to 1" for name in shares if not 0 <= getattr(self, name) <= 1
        ]
        wrong += [f"sorted_by: no covariate {name}" for name in self.sorted_by if name not in self.covariate_names]
        wrong += [f"causal: no SNP {snp.snp} of {self.snps}" for snp in self.causal if not 0 <= snp.snp < self.snps]
        if not 0 < low <= high <= 0.5:
            wrong.append(f"maf={self.maf}: expected two frequencies above 0 and up to 0.5, the smaller first")
        if self.snps < 1 or not self.cohorts or any(min(c.cases, c.controls) < 0 for c in self.cohorts):
            wrong.append("snps, cohorts: expected at least one of each, with no negative numbers")
        if self.populations < 1 or (self.populations > 1 and not 0 < self.fst < 1):
            wrong.append(
                f"populations={self.populations}, fst={self.fst}: expected at least 1, and fst between 0 and 1"
            )
        if wrong:
            raise HanseError(ErrorCode.INVALID_INPUT, "simulation plan: " + "; ".join(wrong))

    @property
    def covariate_names(self) -> tuple[str, ...]:
        return tuple(covariate.name for covariate in self.covariates)

    @property
    def samples(self) -> int:
        return sum(cohort.samples for cohort in self.cohorts)
