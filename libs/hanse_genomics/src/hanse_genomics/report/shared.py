"""What a study's steps send, in words: for the report, and the same as docs/gwas.md has it."""

from __future__ import annotations

from dataclasses import dataclass

from hanse_fabric.study import Study


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
    "numbers of samples, founders, cases, controls, males and females, and of those without gaps; how many SNPs were "
    "turned, for A1 of the file is not the allele that the study counts",
    masked=True,
)
_COUNTS = Shared("test", "genotype counts of each SNP: 0, 1 or 2 copies and missing, by group of samples", masked=True)
_MOMENTS = Shared(
    "scales", "sums and sums of products of the phenotype and the covariates over all samples without gaps", masked=True
)
_LINEAR = Shared(
    "test",
    "of each SNP: genotype counts, sums of products of genotype, covariates and phenotype (packed symmetric X'X and "
    "X'y)",
    masked=True,
)
_NULL = Shared(
    "null model", "gradient and packed information matrix of the covariates' model, at each iteration",
    masked=True,
)  # fmt: skip
_LOGISTIC = Shared(
    "test",
    "of each SNP: genotype counts; gradient and packed information matrix at each iteration, for the "
    "SNPs that have not converged, every time with fresh masks",
    masked=True,
)
_PRUNING = Shared("LD pruning", "counts and products of neighbouring SNPs' genotypes", masked=True)
_COMPONENTS = Shared(
    "principal components",
    "products of genotypes with the present directions (G'GV), at each iteration; the components themselves stay at "
    "the sites",
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
        case _:
            test = (_COUNTS,)
    return (_OPEN, _SAMPLES, *structure, *test)
