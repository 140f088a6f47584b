"""What a study's steps send, in words: for the report, and the same as docs/gwas.md has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from hanse_schemas.study import Study


@dataclass(frozen=True, slots=True)
class Shared:
    """One kind of thing that leaves a site.

    Attributes:
        step: when.
        what: is sent.
        masked: whether the hub learns only its sum over all cohorts.
    """

    step: str
    what: str
    masked: bool


_OPEN = Shared(
    "SNPs",
    "chromosome, position, name and the two allele names (sorted, so that the minor one is not told) of each SNP of "
    "the site's .bim file, and how many were left out there",
    masked=False,
)
_SAMPLES = Shared(
    "samples",
    "numbers of samples: all, founders, cases, controls, males, females, and those without gaps; how many SNPs have "
    "their alleles the other way round",
    masked=True,
)
_COUNTS = Shared("test", "genotype counts of each SNP: 0, 1 or 2 copies, by group of samples", masked=True)
_MOMENTS = Shared(
    "totals, moments",
    "sums, and sums of products, of the phenotype and the covariates over all samples without gaps",
    masked=True,
)
_LINEAR = Shared(
    "test",
    "of each SNP: genotype counts, and sums of products of genotype, covariates and phenotype (half of X'X, and X'y)",
    masked=True,
)
_NULL = Shared("model of the covariates", "score and information matrix (half of it), at each iteration", masked=True)
_LOGISTIC = Shared(
    "test",
    "of each SNP: genotype counts, and sums of products of genotype and covariates; score and information matrix (half "
    "of it) at each iteration, for the SNPs that have not converged, every time with fresh masks; for Firth's "
    "correction, sums of products of three of genotype and covariates, too",
    masked=True,
)
_PRUNING = Shared(
    "LD pruning", "genotype counts of founders, and six counts of each pair of neighbouring SNPs", masked=True
)
_COMPONENTS = Shared(
    "principal components",
    "products of the genotypes with vectors over SNPs, at each round; the components themselves stay at the sites",
    masked=True,
)


def shared_by(study: Study) -> tuple[Shared, ...]:
    """What leaves a site in such a study, in order."""
    structure = (_PRUNING, _COMPONENTS) if study.structure.components else ()
    match study.test:
        case "linear":
            test: tuple[Shared, ...] = (_MOMENTS, _LINEAR)
        case "logistic":
            test = (_MOMENTS, _NULL, _LOGISTIC)
        case "chi_square" | "trend":
            test = (_COUNTS,)
        case unknown:
            assert_never(unknown)
    return (_OPEN, _SAMPLES, *structure, *test)
