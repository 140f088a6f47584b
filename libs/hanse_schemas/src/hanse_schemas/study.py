"""The job's section `study`: a federated genome-wide association study. What it means is `hanse_genomics`'.

Everything here is checked without numpy, by the SDK and by the hub alike.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from hanse_fabric.frozen import Frozen

TILE = 256
"""SNPs that are always computed together: chunks are whole tiles, so that no result depends on the chunk's size."""

ColumnName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.\-]{1,64}$")]


class QualityControl(Frozen):
    """Which SNPs are not tested, judged over all cohorts together. Defaults test every SNP.

    Attributes:
        maf: smallest minor allele frequency.
        missing: largest share of missing genotypes.
        hardy_weinberg: smallest p-value of the exact test of Hardy-Weinberg equilibrium (controls alone, where the
            phenotype is binary), as PLINK has it.
    """

    maf: float = Field(default=0.0, ge=0, lt=0.5)
    missing: float = Field(default=1.0, ge=0, le=1)
    hardy_weinberg: float = Field(default=0.0, ge=0, lt=1)


class Structure(Frozen):
    """Principal components of the genotypes as covariates, over LD-pruned SNPs.

    Attributes:
        components: how many become covariates `PC1`, `PC2`, ...; 0: none.
        maf: smallest minor allele frequency of the SNPs they are made of.
        window, step, r2: of LD pruning, in SNPs and squared correlation (PLINK's --indep-pairwise).
        oversampling: directions more than components that the randomized method carries along.
        tolerance: at which it ends: a bound of the sine of the largest angle to the pooled genotypes' own subspace.
        max_iterations: rounds at which it ends, too, and says so.
    """

    components: int = Field(default=0, ge=0, le=50)
    maf: float = Field(default=0.05, ge=0, lt=0.5)
    window: int = Field(default=50, ge=2, le=1000)
    step: int = Field(default=5, ge=1, le=1000)
    r2: float = Field(default=0.2, gt=0, le=1)
    oversampling: int = Field(default=10, ge=0, le=100)
    tolerance: float = Field(default=1e-8, gt=0, lt=1)
    max_iterations: int = Field(default=100, ge=1, le=1000)

    @model_validator(mode="after")
    def _overlaps(self) -> Structure:
        if self.step > self.window:
            raise ValueError(f"structure.step: {self.step}, expected at most structure.window, {self.window}")
        return self


class Study(Frozen):
    """A genome-wide association study.

    Attributes:
        test: chi_square: allelic, 1 df; trend: Cochran-Armitage; linear, logistic: regression on the dosage.
        phenotype: a column of the sites' phenotype files; None: the .fam file's sixth column.
        covariates: columns of the sites' covariate files, in this order (regressions).
        sex: whether sex is a covariate, too.
        structure: principal components as covariates.
        quality: which SNPs are not tested.
        firth: Firth's penalised logistic regression: never, where the ordinary one fails, or always.
        max_iterations: of a SNP's logistic regression, after which it is NA.
        vif: largest variance inflation factor among the predictors of a SNP's regression, as PLINK's --vif.
        ambiguous: what becomes of SNPs whose strand cannot be told (A/T, C/G). Kept, one that only marks a cohort may
            seem to be a finding.
        chunk: SNPs computed at once; made a multiple of 256.
        in_flight: chunks under way at once.
        few_values: the phenotype of test linear is a quantity, though a cohort may have no values of it but 0, 1 and 2,
            which are PLINK's codes of control and case.
        few_cohorts: the owner knows that sums of fewer than three cohorts tell two of them each other's.
        few_samples: the owner knows that sums over samples that barely exceed the covariates can tell of single people.
    """

    test: Literal["chi_square", "trend", "linear", "logistic"]
    phenotype: ColumnName | None = None
    covariates: tuple[ColumnName, ...] = Field(default=(), max_length=64)
    sex: bool = False
    structure: Structure = Structure()
    quality: QualityControl = QualityControl()
    firth: Literal["never", "fallback", "always"] = "never"
    max_iterations: int = Field(default=20, ge=1, le=1000)
    vif: float = Field(default=50.0, gt=1)
    ambiguous: Literal["keep", "drop"] = "drop"
    chunk: int = Field(default=16_384, ge=1, le=1_000_000)
    in_flight: int = Field(default=4, ge=1, le=64)
    few_values: bool = Field(default=False, exclude_if=lambda few: not few)  # sites of 0.1.0 do not know it
    few_cohorts: bool = False
    few_samples: bool = False

    @model_validator(mode="after")
    def _fits(self) -> Study:
        if len(set(self.covariates)) != len(self.covariates):
            raise ValueError(f"covariates: {', '.join(self.covariates)} names one twice")
        adjusted = bool(self.covariates) or self.sex or self.structure.components > 0
        if adjusted and not self.is_regression:
            raise ValueError(
                f"covariates, sex, structure.components: test {self.test} has none, linear or logistic does"
            )
        if self.firth != "never" and self.test != "logistic":
            raise ValueError(f"firth belongs to test logistic, test is {self.test}")
        if self.few_values and self.test != "linear":
            raise ValueError(f"few_values belongs to test linear, test is {self.test}")
        return self

    @property
    def is_regression(self) -> bool:
        return self.test in ("linear", "logistic")

    @property
    def is_binary(self) -> bool:
        """Whether the phenotype is control or case."""
        return self.test != "linear"

    @property
    def chunk_snps(self) -> int:
        """SNPs of a chunk: whole tiles."""
        return -(-self.chunk // TILE) * TILE
