"""A cohort: a site's files, checked against each other and against what the study asks for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError, unfit
from hanse_genomics.arrays import Floats, Packed
from hanse_genomics.files.bed import Bed, open_bed
from hanse_genomics.files.bim import read_bim
from hanse_genomics.files.columns import numbers, read_columns
from hanse_genomics.files.fam import Fam, Person, read_fam
from hanse_genomics.files.phenotype import coded
from hanse_genomics.files.snps import SnpTable
from hanse_schemas.study import Study

SEX = "SEX"
"""Name of the covariate that a study's `sex` adds."""


@dataclass(frozen=True, slots=True, eq=False)
class Cohort:
    """A site's samples and SNPs. Genotypes stay in the file until they are asked for.

    Attributes:
        ids: (n,) pairs FID, IID, in the order of the .fam file, as everything of length n here.
        founder: bool (n,): neither parent is known.
        sex: int8 (n,): 1 male, 2 female, 0 unknown.
        phenotype: float64 (n,): NaN where missing, also where the sex is unknown, as in PLINK 1.9; a binary one is 0
            for controls and 1 for cases.
        covariates: float64 (n, q): the study's, in its order; then SEX, where it asks for it: 1 male, 0 female.
        covariate_names: (q,).
        snps: the SNPs, in the order of the .bim file.
        unsexed: samples whose phenotype is not used because their sex is unknown.
        bed: the genotypes.
    """

    ids: list[Person]
    founder: NDArray[np.bool_]
    sex: NDArray[np.int8]
    phenotype: Floats
    covariates: Floats
    covariate_names: tuple[str, ...]
    snps: SnpTable
    unsexed: int
    bed: Bed

    @property
    def samples(self) -> int:
        """n."""
        return len(self.ids)

    def packed(self, rows: slice | NDArray[np.int64]) -> Packed:
        """Genotypes as they lie in the .bed file: uint8 (S, ceil(n/4)), read from the disk at each call.

        Args:
            rows: rows of the .bim file.

        Raises:
            HanseError: CONFLICT when the file was changed since it was opened.
        """
        return self.bed.read(rows)


def open_cohort(
    prefix: Path | str, study: Study, phenotypes: Path | None = None, covariates: Path | None = None
) -> Cohort:
    """Open and check a cohort's files.

    Args:
        prefix: path of the .bed, .bim and .fam files, without the ending.
        study: what is asked: the phenotype's and the covariates' columns, and whether the phenotype is binary.
        phenotypes, covariates: files with a header FID IID ..., where the study names columns.

    Raises:
        HanseError: NOT_FOUND for a file that is not there; INVALID_INPUT naming file, line, value and expectation.
    """
    fam = read_fam(Path(f"{prefix}.fam"))
    snps = read_bim(Path(f"{prefix}.bim"))
    bed = open_bed(Path(f"{prefix}.bed"), len(fam.ids), len(snps))
    phenotype, where = _phenotype(fam, study, phenotypes)
    unsexed = ~np.isnan(phenotype) & (fam.sex == 0)
    # PLINK 1.9 sets phenotypes of samples without a sex to missing before it tests anything; so does sPLINK.
    phenotype[unsexed] = np.nan
    if np.isnan(phenotype).all():
        raise unfit(
            f"{where}: no sample has both a phenotype and a sex (column 5, 1 or 2)", f"{fam.table.rows} samples",
            code=ErrorCode.INVALID_INPUT,
            hint="samples whose sex is unknown are not tested, as in PLINK 1.9 without --allow-no-sex",
        )  # fmt: skip
    values = np.empty((len(fam.ids), 0))
    if study.covariates:
        if covariates is None:
            raise _no_file("covariates", ", ".join(study.covariates), ".cov")
        values = read_columns(covariates, study.covariates, fam.ids)
    names = study.covariates
    if study.sex:
        male = np.select([fam.sex == 1, fam.sex == 2], [1.0, 0.0], np.nan)
        values, names = np.column_stack([values, male]), (*names, SEX)
    return Cohort(
        ids=fam.ids, founder=fam.founder, sex=fam.sex, phenotype=phenotype, covariates=values,
        covariate_names=names, snps=snps, unsexed=int(unsexed.sum()), bed=bed,
    )  # fmt: skip


def _phenotype(fam: Fam, study: Study, phenotypes: Path | None) -> tuple[Floats, str]:
    if study.phenotype is None:
        where = f"{fam.table.path.name}, phenotype (column 6)"
        values = numbers(fam.table, 5, "the phenotype")
    elif phenotypes is None:
        raise _no_file("phenotype", study.phenotype, ".pheno")
    else:
        where = f"{phenotypes.name}, column {study.phenotype}"
        values = read_columns(phenotypes, [study.phenotype], fam.ids)[:, 0]
    return coded(values, where, binary=study.is_binary, few_values=study.few_values), where


def _no_file(field: str, value: str, ending: str) -> HanseError:
    return HanseError(
        ErrorCode.INVALID_INPUT,
        f"study.{field}: asks for {value}, and this site has no {ending} file for this data set",
        hint=f"name the {ending} file where the data set is described, or take the {field} out of the study",
    )
