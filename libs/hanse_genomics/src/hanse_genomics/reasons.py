"""Why a SNP has no result: one code a SNP, and the words for it. No numpy here."""

from __future__ import annotations

from enum import IntEnum


class Reason(IntEnum):
    """0 is a SNP that was tested."""

    TESTED = 0
    MISSING = 1
    HARDY_WEINBERG = 2
    MAF = 3
    MONOMORPHIC = 4
    ONE_GROUP = 5
    FEW_SAMPLES = 6
    COLLINEAR = 7
    SEPARATION = 8
    NOT_CONVERGED = 9
    HAPLOID = 10
    NO_VARIANCE = 11


WORDS: dict[int, str] = {
    Reason.TESTED: "tested",
    Reason.MISSING: "quality: more missing genotypes than allowed",
    Reason.HARDY_WEINBERG: "quality: not in Hardy-Weinberg equilibrium",
    Reason.MAF: "quality: minor allele too rare",
    Reason.MONOMORPHIC: "monomorphic: nobody who is tested carries a second allele",
    Reason.ONE_GROUP: "no genotypes among the cases, or none among the controls",
    Reason.FEW_SAMPLES: "too few samples with a genotype for so many predictors",
    Reason.COLLINEAR: "the SNP and the covariates explain each other (collinear, or above the study's vif)",
    Reason.SEPARATION: "separation: the predictors tell cases from controls without error",
    Reason.NOT_CONVERGED: "not converged within the study's max_iterations",
    Reason.HAPLOID: "a haploid chromosome, Y or MT, which the trend test does not take",
    Reason.NO_VARIANCE: "the phenotype does not vary, or is explained without error",
}


def words(code: int) -> str:
    """A code in one short line."""
    return WORDS.get(code, f"reason {code}")
